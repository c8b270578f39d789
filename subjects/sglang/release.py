"""The release of SGLang that is installed: its version, where its names are, and what it needs to run without a GPU."""

import importlib
import importlib.metadata
import logging
import os
import re
from typing import Any

from statecheck.subject.not_offered import NotOffered

# An empty list of devices crashes the release's own look at them.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
# A state names its tokens in 32 bits of each of two channels.
os.environ.setdefault("SGLANG_MAMBA_CONV_DTYPE", "float32")
os.environ.setdefault("SGLANG_MAMBA_SSM_DTYPE", "float32")

from subjects.sglang.stand_ins import stand_in

stand_in()


def version() -> tuple[int, ...]:
    """The numbers of the release; those of a checkout that was never built are 999."""
    try:
        found = re.match(r"\d+(\.\d+)*", importlib.metadata.version("sglang"))
    except importlib.metadata.PackageNotFoundError:
        found = None
    return tuple(map(int, found[0].split("."))) if found else (999,)


def find(*places: str) -> Any:
    """What the first of `places`, each a module and a name as `a.b:name`, leads to.

    Raises:
        NotOffered: none of them exists in this release.
    """
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            # That a package is missing which the release needs does not mean that the release lacks the name.
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        if hasattr(found, name):
            return getattr(found, name)
    raise NotOffered(f"none of {', '.join(places)}")


RELEASE = version()
RELEASE_NAME = ".".join(map(str, RELEASE))
logging.getLogger("sglang").setLevel(logging.ERROR)
logging.getLogger("transformers").setLevel(logging.ERROR)
