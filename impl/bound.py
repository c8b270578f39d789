"""Launches that are made again and again: of a kernel, most of whose arguments never change."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from triton import knobs

from .bare import BareLaunch, bare_launch


class BoundLaunch:
    """A kernel with all of its arguments but those of the parameters `varying`.

    `constant`: values of other parameters; what is in neither gets its default, or None. `options`: the compiler's. The
    first call on a GPU is a launch through Triton's JIT, which looks at every argument, and compiles. Later calls launch
    what was compiled then, which takes the host a fraction of the time. So nothing in a call may decide what is
    compiled: kernels are decorated not to be specialised on it, and its type never changes.
    """

    def __init__(
        self,
        kernel: Any,
        device: torch.device,
        grid: tuple[int, int, int],
        varying: Sequence[str],
        constant: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        parameters = inspect.signature(kernel.fn).parameters
        assert parameters.keys() >= {*varying, *constant}
        defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        self._kernel, self._device, self._grid, self._options = kernel, device, grid, options
        self._varying = tuple(varying)
        self._arguments = {**dict.fromkeys(parameters), **defaults, **constant}
        self._compiled = False
        self._bare: BareLaunch | None = None

    def __call__(self, values: tuple[int, ...], arguments: Sequence[torch.Tensor | int]) -> None:
        """Launch without waiting for it. `arguments`: of `varying`; `values`: the same, tensors by their addresses."""
        bare = self._bare
        if bare is None or _hooked(self._kernel) or not bare.launched(values):
            self._launch_by_jit(arguments)

    def _launch_by_jit(self, given: Sequence[torch.Tensor | int]) -> None:
        arguments = self._arguments | dict(zip(self._varying, given, strict=True))
        compiled = self._kernel[self._grid](*arguments.values(), **self._options)
        if not self._compiled:
            self._compiled = True
            self._bare = bare_launch(compiled, self._device, self._grid, self._varying, arguments)


def _hooked(kernel: Any) -> bool:
    """Whether Triton's JIT has to tell somebody of launches: profilers hook into these."""
    runtime = knobs.runtime
    return bool(
        kernel.pre_run_hooks
        or getattr(runtime.launch_enter_hook, "calls", runtime.launch_enter_hook)
        or getattr(runtime.launch_exit_hook, "calls", runtime.launch_exit_hook)
    )
