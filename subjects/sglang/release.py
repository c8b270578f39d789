"""The release of SGLang that is installed: its version, where its names are, and what it needs to run without a GPU."""

import logging
import os

from statecheck.subject.subject import NotOffered, first_offered, version_of

# An empty list of devices crashes an older release's own look at them; -1 stands for none, too.
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0") or "-1"
os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
# Keys of accepted drafts are moved without a kernel.
os.environ.setdefault("SGLANG_NATIVE_MOVE_KV_CACHE", "1")
# A state names its tokens in 32 bits of each of two channels.
os.environ.setdefault("SGLANG_MAMBA_CONV_DTYPE", "float32")
os.environ.setdefault("SGLANG_MAMBA_SSM_DTYPE", "float32")

from subjects.sglang.stand_ins import install_operators, stand_in

__all__ = ["RELEASE", "RELEASE_NAME", "NotOffered", "find"]

stand_in()
install_operators()


find = first_offered
"""Taken from here, so that what is above is done before a module imports the release."""


RELEASE = version_of("sglang")
RELEASE_NAME = ".".join(map(str, RELEASE))
logging.getLogger("sglang").setLevel(logging.ERROR)
logging.getLogger("transformers").setLevel(logging.ERROR)
