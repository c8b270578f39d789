"""Stand-ins for packages that SGLang imports and that no scenario calls: those for GPUs, for images and for servers.

A stand-in that did nothing when it is called would show as a defect of the release, so that every call of it raises.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tomllib
import types
import warnings
from pathlib import Path
from typing import Any

import torch

_PACKAGES = frozenset(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["packages"]
)


class _AbsentType(type):
    """The class of absent names: their attributes are absent names, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{cls.__module__}.{cls.__qualname__}", name)

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, _: Any) -> Any:
        return cls


def _absent(module: str, name: str) -> Any:
    """A name of a package that is absent: it can be a base class, an annotation or a decorator, and cannot be called."""

    def refuse(cls: Any, *given: Any, **named: Any) -> Any:
        if cls.__module__ != module:
            return object.__new__(cls)
        if len(given) == 1 and not named and isinstance(given[0], (type, types.FunctionType)):
            return given[0]
        raise RuntimeError(f"{module}.{name} was called, but should not be needed without a GPU [stand-in]")

    def any_schema(cls: Any, *_: Any) -> Any:  # noqa: ARG001 - pydantic's protocol
        return importlib.import_module("pydantic_core.core_schema").any_schema()

    members = {
        "__module__": module,
        "__new__": refuse,
        "__get_pydantic_core_schema__": classmethod(any_schema),
    }
    return _AbsentType(name, (), members)


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _absent(self.__name__, name)
        setattr(self, name, made)
        return made


class _StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Python asks it last, so that what is installed is imported."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name.partition(".")[0] in _PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        made = _AbsentModule(spec.name)
        # A package, whose modules are absent, too.
        made.__path__ = []
        return made

    def exec_module(self, module: Any) -> None:
        """It stays empty."""


class _Operators:
    """In the place of `torch.ops.sgl_kernel`: operators for CPUs that raise when they are called."""

    def __getattr__(self, name: str) -> Any:
        # The release asks which others there are, to describe them to torch.
        if not name.endswith("_cpu"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"torch.ops.sgl_kernel.{name} was called, but is not installed [stand-in]")

        setattr(self, name, refuse)
        return refuse


class _NoImages:
    """In the place of `transformers.AutoImageProcessor` where that needs torchvision: the release registers models for images there."""

    @staticmethod
    def register(*_: Any, **__: Any) -> None:
        """No scenario has images."""


def stand_in() -> None:
    """Install the stand-ins, once; transformers must have looked for its optional packages before."""
    if any(isinstance(finder, _StandInFinder) for finder in sys.meta_path):
        return
    warnings.filterwarnings("ignore", module=r"sglang\..*")
    optional = importlib.import_module("transformers.utils.import_utils")
    for name in dir(optional):
        if name.startswith("is_") and name.endswith("_available"):
            ask = getattr(optional, name)
            try:
                ask()
            except (TypeError, ImportError):
                # It takes an argument, or raises where the package is missing: it remembers nothing either way.
                continue
    # The first takes what it can import, and calls it at once; the second makes transformers anew.
    for part in ("integrations.hub_kernels", "processing_utils"):
        importlib.import_module(f"transformers.{part}")
    transformers: Any = sys.modules["transformers"]
    if getattr(transformers.AutoImageProcessor, "is_dummy", False):
        transformers.AutoImageProcessor = _NoImages
    sys.meta_path.append(_StandInFinder())
    if importlib.util.find_spec("sgl_kernel").loader.__class__ is _StandInFinder:  # type: ignore[union-attr]
        vars(torch.ops)["sgl_kernel"] = _Operators()
