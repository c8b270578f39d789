"""Property-based verification of recurrent-state management in LLM serving engines.

In a test module of a port's own suite:

    import my_port
    import statecheck

    test_port = statecheck.properties(my_port, device="cpu")

docs/install.md of the repository has the rest: the command `statecheck`, and what each argument does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from statecheck.rooms import open_rooms

__all__ = ["properties"]


def properties(
    port: ModuleType | str,
    *,
    device: str = "auto",
    known: str | Path | None = None,
    require: Sequence[str] = (),
    max_examples: int | None = None,
) -> Callable[..., None]:
    """A test of every property of what `port` offers, one item each; assign it to a name that begins with `test_`.

    An item passes if an example reached the property's own assertion. It is skipped where the property is not applicable, or
    nothing was compared, and an expected failure where all that failed is a declared defect.

    Args:
        port: what is verified, or its name: plain functions as in PROTOCOL.md, or the documents' names.
        device: "auto", "cpu" or "cuda".
        known: a TOML file of known defects, in place of those that the port declares; a relative path starts where the
            module lies that calls this.
        require: functions that the port has to offer.
        max_examples: how many examples a property has; the option `--statecheck-max-examples` goes before it, and
            Hypothesis' own settings behind it.

    Raises:
        ValueError: an argument is not as said here, or `port` is no subject.
    """
    caller = sys._getframe(1)
    open_rooms()
    from statecheck.suite.items import suite_of

    return suite_of(
        port,
        (caller.f_code.co_filename, caller.f_lineno),
        device=device,
        known=known,
        require=require,
        max_examples=max_examples,
    )
