"""A worker tells when Triton compiles: that takes seconds, and is no sign of a call that hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statecheck.kernels import compilations


class _Telling:
    """A hook of Triton's compiler that tells and then does what the hook before it does."""

    def __init__(self, tell: Callable[[], None], before: Any) -> None:
        self._tell = tell
        self._before = before

    def __call__(self, *arguments: Any, **told: Any) -> Any:
        self._tell()
        return self._before(*arguments, **told) if self._before is not None else None


def tell_compilations(tell: Callable[[str], None]) -> None:
    """From now on, call `tell` with "begun" and "done" around each compilation in this process."""
    from triton import knobs

    compilations.count()
    counting = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_cache_hook = _Telling(lambda: tell("begun"), knobs.runtime.jit_cache_hook)
    # Behind the one that counts, which is looked for by its type.
    counting.before = _Telling(lambda: tell("done"), counting.before)
