"""Functions of the harness that a case can call beside the subject's: those that scripts embed, and the launch of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statecheck.execution.objects.embedded import canary_identity, capture, owned_fields, replay
from statecheck.subject import Subject


def launch(
    subject: Subject,
    kernel: str,
    grid: tuple[int, ...],
    arguments: dict[str, Any],
    constexprs: dict[str, Any],
) -> None:
    """Launch the subject's Triton kernel of that name, for kernels that no function of the subject launches."""
    # Not before the process is prepared: Triton reads TRITON_INTERPRET when it is imported.
    from statecheck.kernels.private import KernelInterface

    found = subject.resolve(kernel)
    # The name comes from a case file: nothing but a kernel may be run by it.
    if not isinstance(found, KernelInterface):
        raise TypeError(f"kernel = {kernel!r}, but should be a Triton kernel of {subject.name} [launch]")
    found[tuple(grid)](**arguments, **constexprs)


OWN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "owned_fields": owned_fields,
    "capture": capture,
    "replay": replay,
    "canary_identity": canary_identity,
}
