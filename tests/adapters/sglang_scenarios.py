"""Scenarios of SGLang's engine: run in the environment of a release, they print the laws that are broken."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any
from unittest import mock

OVERLAPPED: Mapping[str, Any] = {"strategy": "extra_buffer", "overlap": True, "max_mamba_cache_size": 16}
PLAIN: Mapping[str, Mapping[str, Any]] = {
    "no_buffer": {},
    "extra_buffer": {"strategy": "extra_buffer"},
    "overlap": OVERLAPPED,
    "the core in Rust": {**OVERLAPPED, "core": "rust"},
    "trees of drafts": {**OVERLAPPED, "num_draft_tokens": 4, "draft_breadth": 2, "mamba_track_interval": 8},
    "mixed batches": {**OVERLAPPED, "mixed": True},
    "drafts": {**OVERLAPPED, "num_draft_tokens": 3, "mamba_track_interval": 8},
    "Mamba-2 layers": {**OVERLAPPED, "kind": "mamba2"},
    "drafts of Mamba-2 layers": {
        **OVERLAPPED,
        "kind": "mamba2",
        "num_draft_tokens": 3,
        "mamba_track_interval": 8,
    },
    "host memory": {**OVERLAPPED, "max_total_tokens": 36, "host_policy": "write_through"},
}
"""By name: the settings of an engine without a defect."""


SESSIONS: Mapping[str, Any] = {**OVERLAPPED, "sessions": True, "host_policy": "write_through"}


def broken_laws(**settings: Any) -> list[str]:
    """The laws that are broken first where three requests come one after another, the later ones with the prefix of the first; the second is sent back once."""
    from subjects.sglang import RadixEngine, RadixSettings

    engine = RadixEngine(RadixSettings(chunked_prefill_size=8, **settings))
    prompt = tuple(range(1, 11))
    for number, more in enumerate(((), (50,), (60, 61, 62))):
        engine.add_request(f"r{number}", (*prompt, *more), 5)
        for turn in range(20):
            if (number, turn) == (1, 3):
                engine.pause(retract=True)
            step = engine.step({f"r{number}": turn % 3})
            if step.findings:
                return sorted({law for law, *_ in step.findings})
            if step.idle:
                break
        else:
            return ["progress"]
    return []


def broken_laws_of_a_session() -> list[str]:
    """The laws that are broken first where a streaming session has two turns and is closed beside a third one that is aborted; copies to host memory are late."""
    from subjects.sglang import RadixEngine, RadixSettings

    engine = RadixEngine(RadixSettings(**SESSIONS))
    engine.delay_copies(to_host=2, from_host=2)
    engine.open_session("s0", streaming=True)
    history: tuple[int, ...] = ()
    for number in range(2):
        name, sent = f"r{number}", tuple(range(1 + 10 * number, 6 + 10 * number))
        history = (*history, *sent)
        whole: dict[str, Any] = {"after": "", "offset": -1, "drops_output": False, "replaces": False}
        engine.add_turn(name, history, sent, 3, "s0", **whole)
        for _ in range(12):
            step = engine.step({})
            history = (*history, *step.outputs.get(name, ()))
            if step.findings:
                return sorted({law for law, *_ in step.findings})
    # The engine looks for closed sessions before it takes in that this one is closed.
    engine.add_turn("r2", (*history, 30), (30,), 1, "s0", **whole)
    engine.close_session("s0")
    engine.second_passes()
    engine.abort("r2")
    broken = [*engine.step({}).findings]
    engine.second_passes()
    return sorted({law for law, *_ in (*broken, *engine.step({}).findings)})


def broken_laws_of_late_copies() -> list[str]:
    """The laws that are broken first where prefixes of twelve tokens are evicted and loaded back, six turns late."""
    from subjects.sglang import RadixEngine, RadixSettings

    engine = RadixEngine(RadixSettings(**PLAIN["host memory"], chunked_prefill_size=8))
    engine.delay_copies(to_host=0, from_host=6)
    for number in range(6):
        first = 100 * (number % 4)
        engine.add_request(f"r{number}", (*range(first + 1, first + 13), 500 + number), 3)
        for _ in range(7):
            step = engine.step({})
            if step.findings:
                return sorted({law for law, *_ in step.findings})
    return []


def broken_laws_with_little_memory() -> list[str]:
    """The same as `broken_laws` with host memory, on a machine that has a gigabyte free: the release leaves ten."""
    import psutil  # type: ignore[import-untyped]  # of the release's environment

    available = psutil.virtual_memory()._replace(available=1 << 30)
    with mock.patch.object(psutil, "virtual_memory", return_value=available):
        # An engine with other settings is made anew.
        return broken_laws(**{**PLAIN["host memory"], "max_total_tokens": 37})


def without_waiting() -> list[str]:
    """The same as `broken_laws_of_late_copies`, where a layer does not wait for its states."""
    from subjects.sglang.release import find

    pool = find("sglang.srt.mem_cache.memory_pool:HybridReqToTokenPool")
    with mock.patch.object(pool, "mamba2_layer_index", lambda self, layer: self.mamba_map[layer]):
        return broken_laws_of_late_copies()


def ranks_after_a_scheduler() -> list[str]:
    """The message of the release if it is to see two ranks in a process in which a scheduler of one rank ran."""
    from subjects.sglang.shapes import ranks

    broken_laws(**PLAIN["host memory"])
    try:
        with ranks(2):
            return []
    except ValueError as error:
        return [str(error)]


if __name__ == "__main__":
    found = {name: broken_laws(**settings) for name, settings in PLAIN.items()}
    found["a session"] = broken_laws_of_a_session()
    found["ranks after a scheduler"] = ranks_after_a_scheduler()
    found["late copies"] = broken_laws_of_late_copies()
    found["a gigabyte of host memory"] = broken_laws_with_little_memory()
    found["a layer does not wait for its states from host memory"] = without_waiting()
    print(json.dumps(found), file=sys.stdout)
