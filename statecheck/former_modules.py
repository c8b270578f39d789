"""Module names of earlier versions, which imports of users' code may still have.

Imports are forwarded for one version, each with a `DeprecationWarning`, once `properties` has been imported.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER_MODULES: Mapping[str, str] = {
    "properties.harness.bench": "tools.bench",
    "properties.harness.docs": "tools.docs",
    "properties.harness.device": "statecheck.workers",
    "properties.harness": "statecheck",
    "properties.subjects": "subjects",
    "properties.sanitizer": "statecheck.sanitizer",
    "properties.meta": "tests",
}
"""Packages and modules, by their former name; a name inside of another one stands before it."""
FORMER_DEVICE: Mapping[str, str] = {
    "DEVICE_FAULT": "statecheck.case.faults",
    "KINDS": "statecheck.case.faults",
    "Fault": "statecheck.case.faults",
    "InWorker": "statecheck.workers.port",
    "recover": "statecheck.workers.recovered",
    "recover_all": "statecheck.workers.recovered",
    "Confirmation": "statecheck.diagnose.confirm",
    "confirm": "statecheck.diagnose.confirm",
}
"""What `properties.device` offered, and the modules that have it now."""


def current_name(module: str) -> str:
    """What a module is called now; any other name is returned as it is."""
    for former, current in FORMER_MODULES.items():
        if module == former or module.startswith(f"{former}."):
            return current + module.removeprefix(former)
    return module


def forward_imports() -> None:
    """Let former names of modules be imported in this process."""
    if not any(isinstance(finder, _FormerNameFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FormerNameFinder())


def import_in_place_of(name: str) -> None:
    """Put the module that `name` stands for into `sys.modules` under this former name."""
    current = current_name(name)
    warnings.warn(f"{name} is now {current}; this name goes with the next version", DeprecationWarning, 3)
    sys.modules[name] = import_module(current)


class _FormerNameFinder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, _: Sequence[str] | None, __: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != "properties.device" and current_name(fullname) == fullname:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, _: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "properties.device":
            module.__getattr__ = _of_former_device  # type: ignore[method-assign]
        else:
            import_in_place_of(module.__name__)


def _of_former_device(name: str) -> Any:
    if name not in FORMER_DEVICE:
        raise AttributeError(f"properties.device has no {name}")
    current = FORMER_DEVICE[name]
    warnings.warn(
        f"properties.device.{name} is now {current}.{name}; this name goes with the next version",
        DeprecationWarning,
        2,
    )
    return getattr(import_module(current), name)
