"""Any function in a worker: one warm worker per device in this process, and a spare one."""

from __future__ import annotations

import atexit
import threading
from functools import cache
from typing import Any

from statecheck.case.faults import Fault, Faulted
from statecheck.workers.worker_process import WorkerWithSpare, surroundings

_lock = threading.Lock()


def run_in_worker(function: str, *arguments: Any, device: str, time_limit: float = 30.0) -> Any | Fault:
    """Call "package.module:function" in a worker; what it returns, or the fault that it ended of.

    Arguments and result are plain data. The worker stays for the next call unless it came to its end; modules that a
    call has imported are then imported still. Calls of several threads take turns.

    Raises:
        Exception: what the function raised, with its traceback as a note.
        ValueError: `function` has no colon.
    """
    if ":" not in function:
        raise ValueError(f"function = {function!r}, but should be package.module:function [run_in_worker]")
    with _lock:
        worker = _workers(device).worker()
        try:
            return worker.ask(time_limit, "function", surroundings(), function, arguments)[0]
        except Faulted as faulted:
            return faulted.fault


@cache
def _workers(device: str) -> WorkerWithSpare:
    workers = WorkerWithSpare(device)
    atexit.register(workers.close)
    return workers
