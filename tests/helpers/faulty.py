"""Sources of subjects that harm their process, and what a campaign says of their properties."""

FAULTY = """
import ctypes
import os
import time
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from triton import knobs


def add_one(x):
    return x + 1


def remember(x, known=[]):
    known.append(x)
    return known


def complain(x):
    raise ValueError(f"x = {x}, but should be 0 [complain]")


def leave(code):
    os._exit(code)


def be_killed(signal):
    os.kill(os.getpid(), signal)


def sleep(seconds):
    time.sleep(seconds)


def touch_nothing(device):
    if device.type == "cpu":
        ctypes.string_at(0)
    _store_far_away[(1,)](torch.zeros(1, dtype=torch.int32, device=device), 1 << 42)


def never_end(device):
    if device.type == "cpu":
        while True:
            pass
    torch.cuda._sleep(1 << 60)


def wait(device):
    return torch.zeros(1, dtype=torch.int32, device=device).item()


def compile_slowly(seconds):
    knobs.runtime.jit_cache_hook()
    time.sleep(seconds)
    _compiled()
    return 1


def compile_and_sleep(seconds):
    knobs.runtime.jit_cache_hook()
    _compiled()
    time.sleep(seconds)


def _compiled():
    compiled = {"signature": {"x": "i32"}, "constants": None}
    knobs.runtime.jit_post_compile_hook(compile=compiled, fn=SimpleNamespace(name="toy.kernel"))


@triton.jit
def _store_far_away(pointer, distance):
    tl.store(pointer + distance.to(tl.int64), 1)
"""
"""A subject that harms its process in every way, on the device that a call names."""


DEVIANT = """

def cdiv(x, y):
    os._exit(9)


class MambaSpec:
    def __init__(self, **fields):
        vars(self).update(fields)

    @property
    def page_size_bytes(self):
        return -1


del get_temporal_copy_spec

SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation(
            "page-size/padded",
            "https://example.org/1",
            Symptom("value", "MambaSpec.page_size_bytes.fget", "result"),
        ),
        KnownDeviation(
            "conv-layout/environment",
            "https://example.org/2",
            Symptom("value", "get_conv_state_layout", "result"),
        ),
    ),
)
"""
"""The rest of a subject that kills its worker, lacks a function, and deviates as it declares and not as it declares."""

EXACT, ROUNDS_UP = "divide/exact", "cdiv/either-sign"
PADDED = "page-size/padded"
LAYOUT_READ = "conv-layout/environment"
TEMPORAL = "temporal-copy/start"
FATES = {EXACT: "FALSIFIED", ROUNDS_UP: "FALSIFIED", PADDED: "known", TEMPORAL: "not applicable"}
"""What becomes of properties on such a subject."""
