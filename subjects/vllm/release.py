"""The release of vLLM that is installed: its version, where its names are, and what it needs to run without a GPU."""

import importlib.abc
import importlib.machinery
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from statecheck.subject.subject import NotOffered, first_offered, version_of

# Where it sees no driver, a release switches its Triton off; with no device made visible on purpose it lets it stand, as
# it does in workers that get their devices later.
if not torch.cuda.is_available():
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
# A few of its functions are for torch.compile, which has a C++ compiler build headers for half a minute on a new machine.
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

# Before 0.32: which quantised products the extension can do on this GPU.
_ASKED_ON_IMPORT = (
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_group_gemm_supported",
)


class Unbuilt(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for compiled extensions that are not there, as in a checkout: nothing that is verified calls them."""

    def find_spec(self, name: str, *_: Any) -> Any:
        """A module for `vllm._C`, `vllm._C_stable_libtorch` and the like. Python asks this finder last: real ones come first."""
        if re.fullmatch(r"vllm\.(vllm_flash_attn\.)?_(\w+_)?C(_\w+)?", name):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec: Any) -> None:
        """Let Python make it."""

    def exec_module(self, module: Any) -> None:
        """The module stays empty; queries of a release at import are answered with no."""
        if module.__name__ == "vllm._C_stable_libtorch":
            for question in _ASKED_ON_IMPORT:
                torch.library.define(f"_C::{question}", "(int cuda_device_capability) -> bool")
                torch.library.impl(f"_C::{question}", "CompositeImplicitAutograd", lambda _: False)


if torch.cuda.is_available():
    # Without a GPU a release knows how to do without; with one it insists.
    sys.meta_path.append(Unbuilt())


find = first_offered
"""Taken from here, so that what is above is done before a module imports the release."""


def optional(*places: str) -> Any:
    """As `find`, but None where the release does not have it."""
    try:
        return find(*places)
    except NotOffered:
        return None


def adapter_of(released: Any) -> Callable[[Any], Any]:
    """Makes what adapts `released` None where the release does not have that: where it is None, or `object` for a class."""
    return lambda adapter: None if released in (None, object) else adapter


RELEASE = version_of("vllm")
RELEASE_NAME = ".".join(map(str, RELEASE))

import vllm.platforms as _platforms  # noqa: E402 - as the next one

if not torch.cuda.is_available():
    # A release asks the driver for GPUs, which knows of those that are hidden, too.
    _platforms.builtin_platform_plugins = {}

import vllm.utils.torch_utils as _torch_utils  # noqa: E402 - Triton is asked about when vllm is imported


def without_pinned_memory() -> None:
    """Pinned memory is for copies to a GPU; where there is none, PyTorch has none either."""
    vars(_torch_utils)["PIN_MEMORY"] = False
    # 0.32 asks anew each time.
    for place in (_torch_utils, sys.modules.get("vllm.utils.platform_utils")):
        if hasattr(place, "is_pin_memory_available"):
            vars(place)["is_pin_memory_available"] = lambda: False


if not torch.cuda.is_available():
    without_pinned_memory()
logging.getLogger("vllm").setLevel(logging.ERROR)
