"""Causal convolution along the tokens of a sequence, of each channel by itself; the state is a window of the last inputs."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.recurrences.bounds import SILU_SLOPE, dot, silu


def convolved(window: Sequence[float], weight: Sequence[float], bias: float, activation: str | None) -> float:
    """One channel's output for the last of the `W` inputs in `window`, by its `W` weights."""
    found = bias + dot(window, weight)
    return silu(found) if activation else found


def convolved_sizes(
    window: Sequence[float], weight: Sequence[float], bias: float, activation: str | None
) -> float:
    """As `convolved`, on absolute values."""
    size = abs(bias) + sum(abs(x * w) for x, w in zip(window, weight, strict=True))
    return SILU_SLOPE * size if activation else size


def window_before(kept: Sequence[float], width: int, accepted: int | None) -> list[float]:
    """The `width - 1` inputs before a step, of a channel's state: after drafts, those before the last accepted token's successor."""
    first = 0 if accepted is None else accepted - 1
    return list(kept[first : first + width - 1])


def window_after(
    kept: Sequence[float], inputs: Sequence[float], width: int, accepted: int | None
) -> list[float]:
    """What a channel's state holds after a step.

    Without drafts its first `width - 1` entries are the last inputs. With drafts they are followed by one more for each token after the
    first, so that the next step can begin behind each of them. Entries behind these stay.
    """
    seen = [*window_before(kept, width, accepted), *inputs]
    new = seen[len(seen) - (width - 1) :] if accepted is None else seen[1:]
    return [*new, *kept[len(new) :]]
