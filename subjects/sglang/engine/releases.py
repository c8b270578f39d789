"""Where releases differ: what a scheduler is made of, where its loop waits, and what a CPU is refused."""

import importlib.metadata
import inspect
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from statecheck.subject.subject import NotOffered
from subjects.kit.objects import names_in
from subjects.sglang.engine.settings import RadixSettings
from subjects.sglang.engine.tree import prefixes
from subjects.sglang.release import find


def strategy_arguments(settings: RadixSettings) -> dict[str, Any]:
    """The arguments that say which states the cache keeps."""
    capped = {} if settings.states_per_path < 0 else {"mamba_max_states_per_path": settings.states_per_path}
    return {
        "mamba_radix_cache_strategy": settings.strategy,
        "mamba_track_interval": settings.mamba_track_interval,
        **capped,
    }


def require_core(core: str) -> None:
    """The release has this core of the tree, and the adapter can list its nodes.

    Raises:
        NotOffered: it has not; or it is a checkout in which the core was not built.
    """
    if core == "rust":
        try:
            found = find("sglang.srt.mem_cache.rust_tree_core.adapter:RustUnifiedTreeCore")
        except (FileNotFoundError, ModuleNotFoundError) as error:
            raise NotOffered("the core in Rust, which is not built here") from error
        except (ImportError, OSError) as error:
            raise NotOffered(f"the core in Rust, which does not load: {_torches()} ({error})") from error
        if not hasattr(found, "collect_path_info"):
            raise NotOffered("nodes of the core in Rust")


def require_core_for_torch(scheduler: Any, page: int) -> None:
    """The core of a new scheduler's tree gives back what is inserted, where it was compiled for another torch; all is empty again afterwards.

    A compiled core reads tensors by the layout that they have in its torch.

    Raises:
        NotOffered: it does not.
    """
    if _compiled_for() == torch.__version__.partition("+")[0]:
        return
    key, parameters = (
        find(f"sglang.srt.mem_cache.{name}")
        for name in ("radix_cache:RadixKey", "base_prefix_cache:InsertParams")
    )
    # Two sequences of two pages, of which they share the first.
    shared, ends = tuple(range(page)), (tuple(range(page, 2 * page)), tuple(range(2 * page, 3 * page)))
    try:
        for state, end in enumerate(ends, 1):
            tokens, kept = (*shared, *end), torch.tensor([state])
            slots = torch.tensor([page + token for token in tokens])
            scheduler.tree_cache.insert(
                parameters(key=key(array("q", tokens)), value=slots, mamba_value=kept)
            )
        found = {
            prefix.tokens: (prefix.keys, prefix.state)
            for prefix in prefixes(scheduler.tree_cache, [(*shared, *end) for end in ends])
        }
        # An insertion begins copies to host memory, and frees slots of tokens that the tree has: the pools are made anew, too.
        scheduler.tree_cache.reset()
        scheduler.flush_cache()
    except Exception as error:
        raise NotOffered(f"the core in Rust, which fails: {_torches()} ({error})") from error
    nodes = ((shared, None), *(((*shared, *end), state) for state, end in enumerate(ends, 1)))
    if found != {tokens: (tuple(page + slot for slot in tokens[-page:]), state) for tokens, state in nodes}:
        raise NotOffered(f"the core in Rust, which gives back other slots than were inserted: {_torches()}")


def _torches() -> str:
    return f"it is compiled for torch {_compiled_for()}, and torch is {torch.__version__}"


def _compiled_for() -> str:
    """The version of torch that the release asks for, with which its libraries are compiled; "" for a checkout that says nothing."""
    try:
        required = importlib.metadata.requires("sglang") or ()
    except importlib.metadata.PackageNotFoundError:
        return ""
    return next(
        (
            requirement.partition("==")[2].split(";")[0].strip()
            for requirement in required
            if requirement.startswith("torch==")
        ),
        "",
    )


def allow_without_gpu() -> None:
    """Have the release take buffers that keep states at boundaries, whose kernels are ours here."""
    hook = names_in("sglang.srt.arg_groups.mamba_hook")
    if "_platform_supports_mamba_cache_extra_buffer" in hook:
        hook["_platform_supports_mamba_cache_extra_buffer"] = lambda: True
    refuse: Callable[..., Any] = hook["validate_mamba_extra_buffer"]
    if hasattr(refuse, "lets_pass"):
        return

    def passed(*given: Any, **named: Any) -> Any:
        """The release sees a GPU while the function runs, and no other code does."""
        with mock.patch.dict(hook, {"get_platform": lambda: mock.Mock(is_cuda=True)}):
            return refuse(*given, **named)

    passed.lets_pass = True  # type: ignore[attr-defined]
    hook["validate_mamba_extra_buffer"] = passed


def make_scheduler(arguments: Any, ports: Any) -> Any:
    """The release's Scheduler, of one process."""
    module = names_in("sglang.srt.managers.scheduler")
    # A watchdog is a thread that never ends, and would keep each scheduler with all of its files.
    module["create_scheduler_watchdog"] = lambda *_, **__: None
    _keep_contexts()
    made = module["Scheduler"]
    if "SpawnRanks" in module:
        rank = module["spawn_world_rank"](arguments, tp_rank=0, pp_rank=0)
        ranks = module["SpawnRanks"](world_rank=rank, dp_rank=None, gpu_id=0)
        module["publish"](arguments, role="scheduler", ranks=ranks)
        return made(arguments, ports)
    module["publish"](arguments, role="scheduler")
    given = {name: 0 for name in inspect.signature(made).parameters if name.endswith(("_rank", "_id"))}
    return made(**given | {"server_args": arguments, "port_args": ports, "dp_rank": None})


_CONTEXTS: list[Any] = []
"""Contexts of ZeroMQ that schedulers of this process have made and that may have open sockets."""


def _keep_contexts() -> None:
    """Keep each context of a scheduler until it is closed, and let no socket of it wait for its messages to be read.

    A context that is collected together with open sockets waits for them for ever.
    """
    names = names_in("sglang.srt.managers.scheduler_components.ipc_channels")
    connect: Callable[..., Any] = names["get_zmq_socket"]
    if hasattr(connect, "keeps_contexts"):
        return

    def connected(context: Any, *given: Any, **named: Any) -> Any:
        if context not in _CONTEXTS:
            context.linger = 0
            _CONTEXTS.append(context)
        return connect(context, *given, **named)

    connected.keeps_contexts = True  # type: ignore[attr-defined]
    names["get_zmq_socket"] = connected


def leave_process() -> None:
    """Drop what the release keeps for its process: one scheduler is all that it expects there."""
    while _CONTEXTS:
        _CONTEXTS.pop().destroy()
    groups = "sglang.srt.distributed.parallel_state"
    find(f"{groups}:destroy_model_parallel")()
    find(f"{groups}:destroy_distributed_environment")()
    names = names_in(groups)
    # Some releases forget those of attention.
    names.update({name: None for name, held in names.items() if isinstance(held, names["GroupCoordinator"])})
    find("sglang.srt.runtime_context:reset_context")()


def begin_turns_with(scheduler: Any, receive: Callable[..., Any]) -> bool:
    """Have the loop call `receive` at the beginning of each turn; whether that has to process the requests, too."""
    if hasattr(scheduler, "ingest_requests"):
        scheduler.ingest_requests = receive
        return True
    scheduler.request_receiver = SimpleNamespace(recv_requests=receive)
    return False
