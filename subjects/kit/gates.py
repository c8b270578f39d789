"""Gates as layers leave them to kernels that compute their functions themselves."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from torch import Tensor, arange, log, logit

__all__ = ["raw_gates"]


def raw_gates(g: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`raw`, `logs` and `offsets` with `g = -exp(logs) * softplus(raw + offsets)`, and the numbers whose logistic function is `beta`.

    Args:
        g: `[T, HV]` or `[T, HV, K]`; `logs [HV]` and `offsets`, in the shape of a token, differ among eight heads.
        beta: `[T, HV]`.
    """
    heads, of_token = g.shape[1], g.shape[1:]
    # Of the first heads some times lie behind the threshold of a softplus, which is 20, where a decay can still be seen.
    logs = arange(heads, device=g.device) % 8 * 0.5 - 2.0
    offsets = (arange(of_token.numel(), device=g.device) % 5 * 0.25 - 0.5).reshape(of_token)
    times = -g.double() / logs.double().exp().reshape(heads, *[1] * (g.dim() - 2))
    return (log(times.expm1()) - offsets).float(), logs, offsets, logit(beta.double()).float()
