"""The documents' own rules, where ours differ, as subjects: the intact implementation with one of them in its place.

What is put in place is written from the documents' words, for the CPU, and as plainly as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from subjects import Subject, load

Names = dict[str, Any]
"""What a rule replaces, by the documents' names."""


def subject(rule: str) -> Subject:
    """The intact implementation, but for the rule of that name among `RULES`."""
    intact = load("impl").module
    module = ModuleType(name_of(rule))
    vars(module).update({name: getattr(intact, name) for name in intact.__all__})
    vars(module).update(RULES[rule](intact))
    return Subject(module.__name__, module)


def name_of(rule: str) -> str:
    """What the subject is called."""
    return f"documents_{rule}"


def source_of(rule: str) -> str:
    """The source of a module `name_of(rule)`, for those who import their subject by name, as `repro.py` does."""
    return (
        "from tests.docs.documents_rules import subject\n"
        f"found = vars(subject({rule!r}).module)\n"
        "globals().update({name: found[name] for name in found if name[:2] != '__'})\n"
    )


def _named(base: type, replacing: type) -> type:
    """The class under the name of the one that it replaces, by which results are known."""
    replacing.__name__ = replacing.__qualname__ = base.__name__
    return replacing


def _drafts(intact: ModuleType) -> Names:
    """Document 3: where the draft counts of a step add up to 0, no row is speculative, whatever was accepted before."""
    base: Any = intact.GDNAttentionMetadataBuilder

    class Builder(base):
        def build(
            self,
            common_prefix_len: int,
            common_attn_metadata: Any,
            num_accepted_tokens: torch.Tensor | None = None,
            num_decode_draft_tokens_cpu: torch.Tensor | None = None,
            fast_build: bool = False,
        ) -> Any:
            drafts = num_decode_draft_tokens_cpu
            if drafts is None or not drafts.clamp(min=0).any():
                num_accepted_tokens = drafts = None
            return super().build(
                common_prefix_len, common_attn_metadata, num_accepted_tokens, drafts, fast_build
            )

    return {base.__name__: _named(base, Builder)}


def _first_tokens(intact: ModuleType) -> Names:
    """Documents 1 and 3: a row is a decode for being short; whether it is still in its prompt does not count."""
    kinds = ("Mamba1", "Mamba2", "GDN")
    bases = [getattr(intact, f"{kind}AttentionMetadataBuilder") for kind in kinds]
    return {base.__name__: _by_length_alone(base) for base in bases}


def _by_length_alone(base: Any) -> type:
    class Builder(base):
        def build(self, common_prefix_len: int, common_attn_metadata: Any, *args: Any, **kwargs: Any) -> Any:
            m = common_attn_metadata
            # No row is marked as in its prompt; without marks the batch would be refused.
            unmarked = torch.zeros(m.num_reqs, dtype=torch.bool)
            marked = replace(m, is_prefilling=unmarked, seq_lens_cpu_upper_bound=None)
            return super().build(common_prefix_len, marked, *args, **kwargs)

    return _named(base, Builder)


def _resumed(intact: ModuleType) -> Names:
    """Releases before document 4: running columns of finished and preempted requests are forgotten, no others."""

    def cleanup_mamba_state_idx(scheduler_output: Any, mamba_state_idx: dict[str, int]) -> None:
        intact.cleanup_mamba_state_idx(_nobody_resumed(scheduler_output), mamba_state_idx)

    def preprocess_mamba(scheduler_output: Any, *args: Any, **kwargs: Any) -> None:
        intact.preprocess_mamba(_nobody_resumed(scheduler_output), *args, **kwargs)

    return {"cleanup_mamba_state_idx": cleanup_mamba_state_idx, "preprocess_mamba": preprocess_mamba}


def _nobody_resumed(scheduler_output: Any) -> SimpleNamespace:
    cached = SimpleNamespace(resumed_req_ids=set())
    return SimpleNamespace(**vars(scheduler_output) | {"scheduled_cached_reqs": cached})


def _counts_in_place(intact: ModuleType) -> Names:
    """Document 4: the first state's program sets a slot's count, from which other states' programs still decide."""
    base: Any = intact.MambaSpecDecodeGPUContext

    class Context(base):
        def initialize_from_forward_context(
            self,
            kv_cache_config: Any,
            forward_context: Mapping[str, Any],
            mamba_state_copy_funcs: Sequence[Callable[..., Any]],
            block_tables: Sequence[torch.Tensor],
        ) -> None:
            super().initialize_from_forward_context(
                kv_cache_config, forward_context, mamba_state_copy_funcs, block_tables
            )
            self.states = [
                (state, table, function is intact.get_conv_copy_spec)
                for group_id, table in zip(self.mamba_group_ids, block_tables, strict=True)
                for layer in kv_cache_config.kv_cache_groups[group_id].layer_names
                for state, function in zip(
                    forward_context[layer].kv_cache, mamba_state_copy_funcs, strict=False
                )
            ]

        def run_fused_postprocess_align(
            self,
            num_reqs: int,
            num_accepted_tokens_gpu: torch.Tensor,
            state_idx_gpu: torch.Tensor,
            new_num_computed_tokens_gpu: torch.Tensor,
            idx_mapping: torch.Tensor,
        ) -> None:
            for row, slot in enumerate(idx_mapping[:num_reqs].tolist()):
                for number in range(len(self.states) if slot >= 0 else 0):
                    run, computed = int(state_idx_gpu[slot]), int(new_num_computed_tokens_gpu[slot])
                    self._program(row, number, run, computed, num_accepted_tokens_gpu[slot])

        def _program(self, row: int, number: int, run: int, computed: int, count: torch.Tensor) -> None:
            first = computed - int(count) + 1
            blocks = computed // self.block_size
            bias, dest = blocks * self.block_size - first, blocks - 1
            if bias < 0:
                return
            if run == dest and number == 0:
                count.fill_(1)
            if run != dest or bias > 0:
                self._copy(row, number, run, dest, bias)

        def _copy(self, row: int, number: int, run: int, dest: int, bias: int) -> None:
            state, table, is_conv = self.states[number]
            blocks = table[row].tolist()
            if not is_conv:
                state[blocks[dest]] = state[blocks[run + bias]].clone()
                return
            rows = state.transpose(1, 2) if self.conv_state_dim_first else state
            kept = rows[blocks[run], bias:].clone()
            rows[blocks[dest], : len(kept)] = kept

    return {base.__name__: _named(base, Context)}


RULES: dict[str, Callable[[ModuleType], Names]] = {
    "drafts": _drafts,
    "first_tokens": _first_tokens,
    "counts_in_place": _counts_in_place,
    "resumed": _resumed,
}
