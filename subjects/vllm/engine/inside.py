"""Functions of a port in the place of the release's own, inside of its engine: builders, and the copies around a forward.

A port is a module that offers functions by the documents' names, such as `impl`. What it does not offer stays the release's.
What is handed over is put as the documents have it. A release marks rows to skip with block 0 and not -1; tells of a prompt's last
token that it runs as a decode by its drafts, and not by `is_prefilling`; from 0.32 on reads block tables by slot, and not by row; has copy
functions by the kind of layers, and not in a sequence.
"""

import collections
import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from statecheck.subject.subject import NotOffered
from subjects.vllm.engine.config import BUILDERS
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.release import RELEASE, find

__all__ = ["PORTED", "Inside"]


_COPIES, _SECOND = "vllm.v1.worker.mamba_utils", "vllm.v1.worker.gpu.model_states.mamba_hybrid"
_CONTEXT, _ADVANCE = "MambaSpecDecodeGPUContext", "preprocess_mamba_align_fused_kernel"
_OF_FIRST_RUNNER = (
    "MambaBuffers",
    "preprocess_mamba",
    "postprocess_mamba_align_gpu",
    "stage_postprocess_inputs_to_gpu",
)
"""Handed one another's buffers, so that they are replaced together."""
_BUILDERS = {
    "mamba1": "Mamba1AttentionMetadataBuilder",
    "mamba2": "Mamba2AttentionMetadataBuilder",
    "gdn": "GDNAttentionMetadataBuilder",
}
_COUNTS_ALWAYS = (0, 32)
"""Since then the V1 model runner hands over accepted counts in every step with speculation."""
PORTED = (*_BUILDERS.values(), _ADVANCE, _CONTEXT, _OF_FIRST_RUNNER[0])
"""Functions that a port may offer, with those that belong to them."""


class Inside:
    """Functions of a port in an engine with these settings, and how often the engine has called each.

    Args:
        settings: `inside` names the port, "" for none.

    Raises:
        NotOffered: this engine would call nothing of the port, or wants of it what no document has.
    """

    def __init__(self, settings: LiveSettings) -> None:
        self.settings = settings
        self.calls: collections.Counter[str] = collections.Counter()
        self.port = importlib.import_module(settings.inside) if settings.inside else None
        self.builders = {kind for kind in settings.kinds if self._offers(_BUILDERS.get(kind, ""))}
        self.copies = list(self._copies()) if settings.prefix_caching else []
        if not settings.inside:
            return
        if not (self.builders or self.copies):
            raise NotOffered(f"an engine that calls functions of {settings.inside}")
        drafts = settings.runner == "V1" and settings.num_spec > 0
        if drafts and "mamba2" in self.builders and RELEASE < _COUNTS_ALWAYS:
            raise NotOffered("accepted counts in a step without drafts, which the documents' builder wants")
        if self.builders and settings.checkpoints:
            raise NotOffered(
                "states that a prefill saves on its way, which the documents' builders do not know"
            )

    def backend(self, kind: str) -> Any:
        """The release's backend of a recurrent kind, with the builder of the port if it has one."""
        released = find(BUILDERS[kind])
        if kind not in self.builders:
            return released
        builder = self._builder(kind, released.get_builder_cls())
        return type(released.__name__, (released,), {"get_builder_cls": staticmethod(lambda: builder)})

    @functools.cache  # noqa: B019 - as long as its engine
    def _builder(self, kind: str, released: Any) -> Any:
        """One class for all groups of the kind: groups of one class share metadata."""
        return builder_inside(released, getattr(self.port, _BUILDERS[kind]), self._count)

    @contextlib.contextmanager
    def functions(self) -> Iterator[None]:
        """Within, the release's modules have the port's functions. Another engine of the process has its own."""
        released = [(module, name, getattr(module, name)) for module, name, _ in self.copies]
        try:
            for module, name, made in self.copies:
                setattr(module, name, made)
            yield
        finally:
            for module, name, own in released:
                setattr(module, name, own)

    def _copies(self) -> Iterator[tuple[Any, str, Any]]:
        """Module, name, and what stands there instead."""
        copies = importlib.import_module(_COPIES)
        if self.settings.runner == "V1":
            if all(map(self._offers, _OF_FIRST_RUNNER)):
                made = first_runner_inside(self.port, self._count)
                yield from ((copies, name, made[name]) for name in _OF_FIRST_RUNNER)
            return
        second = importlib.import_module(_SECOND)
        if self._offers(_ADVANCE):
            kernel = KernelInside(getattr(self.port, _ADVANCE), _ADVANCE, self._count)
            yield second, _ADVANCE, kernel
        if self._offers(_CONTEXT):
            yield second, _CONTEXT, context_inside(self.port, self._count)

    def _offers(self, name: str) -> bool:
        return hasattr(self.port, name)

    def _count(self, name: str) -> None:
        self.calls[name] += 1


_SKIPPED = 0
"""The block of a row to skip."""
Count = Callable[[str], None]


def builder_inside(released: Any, theirs: Any, count: Count) -> Any:
    """The release's class of a builder, with a port's `build`."""
    metadata = getattr(
        importlib.import_module(released.__module__), released.__name__.removesuffix("Builder")
    )

    class Builder(released):
        def __init__(self, kv_cache_spec: Any, layer_names: Any, vllm_config: Any, device: Any) -> None:
            super().__init__(kv_cache_spec, layer_names, vllm_config, device)
            self.port = theirs(kv_cache_spec, layer_names, vllm_config, device)
            self.supports_update_block_table = self.port.supports_update_block_table
            self.reorder_batch_threshold = self.port.reorder_batch_threshold
            # Where a builder has this, the runner looks blocks up for it.
            if hasattr(self, "mamba_aligned_state_indices"):
                del self.mamba_aligned_state_indices

        def build(self, common_prefix_len: int, common_attn_metadata: Any, **given: Any) -> Any:
            count(f"{theirs.__name__}.build")
            common = _with_tails_as_decodes(common_attn_metadata, given.get("num_decode_draft_tokens_cpu"))
            return self._released(self.port.build(common_prefix_len, common, **given))

        def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
            count(f"{theirs.__name__}.build_for_cudagraph_capture")
            return self._released(self.port.build_for_cudagraph_capture(common_attn_metadata))

        def update_block_table(self, metadata: Any, blk_table: Any, slot_mapping: Any) -> Any:
            count(f"{theirs.__name__}.update_block_table")
            return _skipping_null(self.port.update_block_table(metadata, blk_table, slot_mapping))

        def _released(self, built: Any) -> Any:
            return _skipping_null(_with_decodes_among_prefills(_of_class(built, metadata)))

    return Builder


def _with_tails_as_decodes(common: Any, drafts: torch.Tensor | None) -> Any:
    """A prompt's last token runs as a decode where the row has a state, alone or with drafts that fill its query up."""
    bounds, marks = common.seq_lens_cpu_upper_bound, common.is_prefilling
    if bounds is None or marks is None:
        return common
    lengths = common.query_start_loc_cpu.diff()
    tails = lengths == 1
    if drafts is not None:
        tails = tails | ((drafts >= 0) & (lengths == drafts + 1))
    tails = tails & marks & (bounds > lengths)
    return dataclasses.replace(common, is_prefilling=marks & ~tails)


def _of_class(built: Any, cls: Any) -> Any:
    """Layers of the release ask for the class of their metadata; a port's may have fields more, or fewer."""
    if isinstance(built, cls):
        return built
    made = cls(
        **{field.name: getattr(built, field.name, _absent(field)) for field in dataclasses.fields(cls)}
    )
    vars(made).update({name: value for name, value in vars(built).items() if name not in vars(made)})
    return made


def _absent(field: Any) -> Any:
    return None if field.default is dataclasses.MISSING else field.default


def _with_decodes_among_prefills(built: Any) -> Any:
    """GDN layers run decodes beside prefills by themselves; document 3 has all rows run as prefills."""
    if not hasattr(built, "prefill_query_start_loc") or not built.num_prefills:
        return built
    return dataclasses.replace(
        built,
        num_prefills=built.num_prefills + built.num_decodes,
        num_prefill_tokens=built.num_prefill_tokens + built.num_decode_tokens,
        num_decodes=0,
        num_decode_tokens=0,
        prefill_query_start_loc=built.non_spec_query_start_loc,
        prefill_state_indices=built.non_spec_state_indices_tensor,
        prefill_has_initial_state=built.has_initial_state,
    )


def _skipping_null(built: Any) -> Any:
    for name in ("state_indices_tensor_d", "state_indices_tensor_p"):
        blocks = getattr(built, name, None)
        if blocks is not None:
            # In place, since a graph reads the builder's buffer.
            blocks.masked_fill_(blocks < 0, _SKIPPED)
    return built


def functions_of(port: Any, released: Any) -> tuple[Any, ...]:
    """A port's copy functions for those of a release: of the layers that have most states, which others have the first of."""
    several = released.values() if isinstance(released, dict) else [released]
    return tuple(getattr(port, function.__name__) for function in max(several, key=len))


def context_inside(port: Any, count: Count) -> Any:
    """A port's context, as the V2 model runner makes and calls it."""

    class Context:
        def __init__(self, made: Any, capacity: int) -> None:
            self.made, self.capacity, self.by_slot = made, capacity, False

        @property
        def is_initialized(self) -> bool:
            return bool(self.made.is_initialized)

        @classmethod
        def create(
            cls,
            max_num_reqs: int,
            kv_cache_config: Any,
            *,
            device: Any,
            make_buffer: Any,
            num_state_types: int = 0,
            copy_funcs: Any = None,
        ) -> Any:
            states = num_state_types or len(functions_of(port, copy_funcs))
            theirs = port.MambaSpecDecodeGPUContext
            return cls(
                theirs.create(max_num_reqs, kv_cache_config, states, device, make_buffer), max_num_reqs
            )

        def initialize_from_forward_context(
            self,
            kv_cache_config: Any,
            forward_context: Any,
            copy_funcs: Any,
            block_tables: Any,
            tables_by_row: Any = None,
        ) -> None:
            self.by_slot = tables_by_row is not None
            functions = functions_of(port, copy_funcs)
            self.made.initialize_from_forward_context(
                kv_cache_config, forward_context, functions, block_tables
            )

        def run_fused_precopy(self, num_reqs: int, *vectors: torch.Tensor) -> None:
            count("MambaSpecDecodeGPUContext.run_fused_precopy")
            self.made.run_fused_precopy(*self._rows(num_reqs, vectors))

        def run_fused_postprocess_align(self, num_reqs: int, *vectors: torch.Tensor) -> None:
            count("MambaSpecDecodeGPUContext.run_fused_postprocess_align")
            self.made.run_fused_postprocess_align(*self._rows(num_reqs, vectors))

        def _rows(self, num_reqs: int, vectors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
            *values, given = vectors
            slots = given[:num_reqs].to(torch.int32)
            if not self.by_slot:
                return num_reqs, *values, slots
            # Rows that are slots have their tables at the row, too. What is skipped ends up in an entry of its own.
            rows = torch.full((self.capacity + 1,), -1, dtype=torch.int32, device=slots.device)
            rows[slots.long()] = slots
            return self.capacity, *values, rows[:-1]

    return Context


def first_runner_inside(port: Any, count: Count) -> dict[str, Any]:
    """A port's functions and buffers as the V1 model runner calls them, by their names in the release's module."""

    class Buffers:
        @classmethod
        def create(cls, *, copy_funcs: Any, **others: Any) -> Any:
            return port.MambaBuffers.create(copy_funcs=functions_of(port, copy_funcs), **others)

    def preprocess_mamba(*given: Any, **_: Any) -> None:
        *others, copy_funcs, buffers = given
        count("preprocess_mamba")
        port.preprocess_mamba(*others, functions_of(port, copy_funcs), buffers)

    def postprocess_mamba_align_gpu(*, mamba_state_copy_funcs: Any, **others: Any) -> None:
        count("postprocess_mamba_align_gpu")
        functions = functions_of(port, mamba_state_copy_funcs)
        port.postprocess_mamba_align_gpu(mamba_state_copy_funcs=functions, **others)

    def stage_postprocess_inputs_to_gpu(*given: Any, **named: Any) -> None:
        count("stage_postprocess_inputs_to_gpu")
        port.stage_postprocess_inputs_to_gpu(*given, **named)

    made = (preprocess_mamba, postprocess_mamba_align_gpu, stage_postprocess_inputs_to_gpu)
    return {"MambaBuffers": Buffers} | {function.__name__: function for function in made}


class KernelInside:
    """A port's kernel that counts its launches."""

    def __init__(self, kernel: Any, name: str, count: Count) -> None:
        self.kernel, self.launched = kernel, functools.partial(count, name)

    def __getitem__(self, grid: Any) -> Any:
        self.launched()
        return self.kernel[grid]
