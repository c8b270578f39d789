"""Launches that are made again and again: of a kernel, most of whose arguments never change."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Looked up once: launches of one kernel are bound again and again."""
    return inspect.signature(function).parameters


class BoundLaunch:
    """A kernel with all of its arguments but those of the parameters `varying`.

    `constant`: values of other parameters; what is in neither gets its default, or None. `options`: the compiler's. The
    first call on a GPU is a launch through Triton's JIT, which looks at every argument, and compiles. Later calls launch
    what was compiled then, which takes the host half the time. So nothing in a call may decide what is compiled: kernels
    are decorated not to be specialised on it, and its type never changes.
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
        parameters = _parameters(kernel.fn)
        assert parameters.keys() >= {*varying, *constant}
        defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
        self._kernel, self._device, self._grid, self._options = kernel, device, grid, options
        self._arguments = list({**dict.fromkeys(parameters), **defaults, **constant}.values())
        self._places = [list(parameters).index(name) for name in varying]
        self._launch_compiled: Callable[..., None] | None = None

    def __call__(self, *values: Any) -> None:
        """Launch without waiting for it, with these values of `varying`."""
        arguments = self._arguments.copy()
        for place, value in zip(self._places, values, strict=True):
            arguments[place] = value
        # Only the JIT calls hooks before runs; both ways call those around launches.
        if self._launch_compiled is not None and not self._kernel.pre_run_hooks:
            self._launch_compiled(*arguments)
            return
        compiled = self._kernel[self._grid](*arguments, **self._options)
        # On a CPU nothing was compiled: what stands for the JIT there executes kernels.
        if self._device.type == "cuda":
            self._launch_compiled = compiled[self._grid]
