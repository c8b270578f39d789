"""Where releases differ: what a scheduler is made of, where its loop waits, what holds a request's slots, and what a CPU is refused."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from statecheck.subject.not_offered import NotOffered
from subjects.sglang.engine.settings import RadixSettings
from subjects.sglang.release import find

_STRATEGIES = {
    "mamba_radix_cache_strategy": ("no_buffer", "extra_buffer", "extra_buffer_lazy"),
    "mamba_scheduler_strategy": ("no_buffer", "extra_buffer"),
    "": ("no_buffer",),
}
"""By the argument that names it, older ones last; the oldest releases have no such argument."""
_CAP = "mamba_max_states_per_path"
_REFUSALS = {
    "sglang.srt.arg_groups.mamba_hook": ("validate_mamba_extra_buffer", "get_platform"),
    "sglang.srt.server_args": ("_validate_mamba_extra_buffer", "_handle_mamba_radix_cache", "is_cuda"),
}
"""By module, functions that refuse a CPU, and last what they ask for the device."""

_LAYERS = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_INSTRUCTIONS = "is_amx_tile_supported", "is_intel_amx_backend_available"
"""What older releases ask for when they import kernels for a CPU."""


def names_in(module: str) -> dict[str, Any]:
    """The names of a module of the release, to be read and replaced; none where the release has no such module."""
    try:
        return vars(__import__(module, fromlist=["_"]))
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        return {}


def strategy_arguments(settings: RadixSettings) -> dict[str, Any]:
    """The arguments that say which states the cache keeps.

    Raises:
        NotOffered: the release does not have the strategy.
    """
    fields = inspect.signature(find("sglang.srt.server_args:ServerArgs")).parameters
    named = next(one for one in _STRATEGIES if one in fields or not one)
    if settings.strategy not in _STRATEGIES[named]:
        raise NotOffered(f"strategy {settings.strategy}")
    capped = {} if settings.states_per_path < 0 else {_CAP: settings.states_per_path}
    if not set(capped) <= set(fields):
        raise NotOffered(_CAP)
    if not named:
        return {}
    return {named: settings.strategy, "mamba_track_interval": settings.mamba_track_interval, **capped}


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
        if not hasattr(found, "collect_path_info"):
            raise NotOffered("nodes of the core in Rust")


def allow_without_gpu(chunk: int) -> None:
    """Have the release take buffers that keep states at boundaries, whose kernels are ours here, and states every `chunk` tokens of a prefill."""
    hook = names_in("sglang.srt.arg_groups.mamba_hook")
    if "_platform_supports_mamba_cache_extra_buffer" in hook:
        hook["_platform_supports_mamba_cache_extra_buffer"] = lambda: True
    for module, (*refusing, asked) in _REFUSALS.items():
        names = names_in(module)
        owners = [names, *(vars(names[one]) for one in ("ServerArgs",) if one in names)]
        for owner in owners if asked in names else ():
            for name in refusing:
                if name in owner:
                    _let_pass(owner if owner is names else names["ServerArgs"], name, names, asked)
    try:
        names_in(_LAYERS)
    except AssertionError:
        # Its imports are done by now, and have had the true answer.
        with mock.patch.dict(names_in("sglang.srt.utils.common"), dict.fromkeys(_INSTRUCTIONS, True)):
            names_in(_LAYERS)
    # Of releases that do not read it from the model.
    for module in ("sglang.srt.server_args", "sglang.srt.managers.schedule_batch", _LAYERS):
        names_in(module)["FLA_CHUNK_SIZE"] = chunk


def _let_pass(owner: Any, name: str, names: dict[str, Any], asked: str) -> None:
    """Have a function see a GPU while it runs, and nothing else."""
    refuse: Callable[..., Any] = owner[name] if isinstance(owner, dict) else getattr(owner, name)
    if hasattr(refuse, "lets_pass"):
        return

    def passed(*given: Any, **named: Any) -> Any:
        seen = mock.Mock(is_cuda=True) if asked == "get_platform" else True
        with mock.patch.dict(names, {asked: lambda: seen}):
            return refuse(*given, **named)

    passed.lets_pass = True  # type: ignore[attr-defined]
    if isinstance(owner, dict):
        owner[name] = passed
    else:
        setattr(owner, name, passed)


def make_scheduler(arguments: Any, ports: Any) -> Any:
    """The release's Scheduler, of one process."""
    module = names_in("sglang.srt.managers.scheduler")
    # A watchdog is a thread that never ends, and would keep each scheduler with all of its files.
    module["create_scheduler_watchdog"] = lambda *_, **__: None
    made = module["Scheduler"]
    if "SpawnRanks" in module:
        rank = module["spawn_world_rank"](arguments, tp_rank=0, pp_rank=0)
        ranks = module["SpawnRanks"](world_rank=rank, dp_rank=None, gpu_id=0)
        module["publish"](arguments, role="scheduler", ranks=ranks)
        return made(arguments, ports)
    if "publish" in module:
        module["publish"](arguments, role="scheduler")
    given = {name: 0 for name in inspect.signature(made).parameters if name.endswith(("_rank", "_id"))}
    return made(**given | {"server_args": arguments, "port_args": ports, "dp_rank": None})


def leave_process() -> None:
    """Drop what the release keeps for its process: one scheduler is all that it expects there."""
    groups = "sglang.srt.distributed.parallel_state"
    find(f"{groups}:destroy_model_parallel")()
    find(f"{groups}:destroy_distributed_environment")()
    names = names_in(groups)
    # Some releases forget those of attention.
    names.update({name: None for name, held in names.items() if isinstance(held, names["GroupCoordinator"])})
    experts = names_in("sglang.srt.eplb.expert_location")
    experts.update(dict.fromkeys({"_global_expert_location_metadata"} & set(experts)))
    reset = names_in("sglang.srt.runtime_context").get("reset_context")
    if reset is not None:
        reset()


def begin_turns_with(scheduler: Any, receive: Callable[..., Any]) -> bool:
    """Have the loop call `receive` at the beginning of each turn; whether that has to process the requests, too."""
    if hasattr(scheduler, "ingest_requests"):
        scheduler.ingest_requests = receive
        return True
    if hasattr(scheduler, "request_receiver"):
        scheduler.request_receiver = SimpleNamespace(recv_requests=receive)
    else:
        scheduler.recv_requests = receive
    return False


def run_loop(scheduler: Any) -> None:
    """The loop that the release would run."""
    if hasattr(scheduler, "run_event_loop"):
        scheduler.run_event_loop()
    elif scheduler.enable_overlap:
        scheduler.event_loop_overlap()
    else:
        scheduler.event_loop_normal()


def channels(scheduler: Any) -> Any:
    """What has the sockets."""
    return getattr(scheduler, "ipc_channels", scheduler)


def is_idle(scheduler: Any) -> bool:
    """Whether no request is left."""
    if hasattr(scheduler, "is_fully_idle"):
        return bool(scheduler.is_fully_idle())
    return bool(scheduler._is_no_request()) and not scheduler.waiting_queue


class HeldSlots:
    """What a request holds, by the names of the newest releases.

    Args:
        request: the release's Req, which has it all, a part of it or none of it itself.
    """

    def __init__(self, request: Any) -> None:
        held = getattr(request, "kv", None)
        self._places = [request] if held is None else [held, request]

    def __getattr__(self, name: str) -> Any:
        return next(getattr(one, name) for one in self._places if hasattr(one, name))
