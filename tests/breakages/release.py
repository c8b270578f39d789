"""Defects planted in a copy of a release's own scheduler, manager and runner, and how many scenarios it takes to find each.

    .vllm/0.33.0/bin/python -m tests.breakages.release

prints the table, for release 0.33.0; `--only <word>` tries those whose name has the word. With `.vllm/0.31.0/bin/python` it is that of
mamba_cache_mode "all", which later releases do not have. Each is tried in a process of its own, in which
the module is loaded from a changed copy. The laws know nothing of them.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.breakages.scenarios import LiveTrial, print_table

if TYPE_CHECKING:
    from subjects import Subject

RELEASE = "0.33.0"
MAX_EXAMPLES = 600


@dataclass(frozen=True)
class PlantedDefect:
    """A defect in words, the module of the release, and what of its source stands for what instead.

    Args:
        models: of a library of sequences, those that scenarios are about; "" for all.
    """

    name: str
    module: str
    before: str
    after: str
    release: str
    property_id: str
    models: str = ""


def planted(
    defects: Mapping[str, Mapping[str, tuple[str, str]]],
    release: str = RELEASE,
    property_id: str = "real-engine/v2",
    models: str = "",
) -> tuple[PlantedDefect, ...]:
    """Defects by module and name, which scenarios of that property find: the text before, and after."""
    return tuple(
        PlantedDefect(name, module, before, after, release, property_id, models)
        for module, named in defects.items()
        for name, (before, after) in named.items()
    )


EVERY_BOUNDARY = "0.31.0"
"""The last release that has it."""

PLANTED = planted(
    {
        "vllm.v1.core.sched.scheduler": {
            "a chunk that begins inside of a block runs past its end": (
                "if start % block_size != 0 and not use_internal_checkpoint\n",
                "if False\n",
            ),
            "rejected drafts stay computed": (
                "request.num_computed_tokens -= num_rejected\n",
                "request.num_computed_tokens -= max(0, num_rejected - 1)\n",
            ),
            "a preempted request comes back where it was": (
                "request.status = RequestStatus.PREEMPTED\n        request.num_computed_tokens = 0\n",
                "request.status = RequestStatus.PREEMPTED\n",
            ),
        },
        "vllm.v1.core.single_type_kv_cache_manager": {
            "a block of the same step is hit": (
                "and new_computed_blocks[-1].block_hash in self.cached_blocks_this_step\n",
                "and False\n",
            ),
            "the block that the next step copies from is freed": (
                "< cdiv(processed_computed_tokens, self.block_size) - 1\n            ):\n                blocks",
                "<= cdiv(processed_computed_tokens, self.block_size) - 1\n            ):\n                blocks",
            ),
        },
        "vllm.v1.core.block_pool": {
            "a block that is taken keeps its hash": (
                "                self._maybe_evict_cached_block(block)\n                assert block.ref_cnt == 0\n",
                "                assert block.ref_cnt == 0\n",
            ),
            "a hit is not counted where the block has an owner": (
                "                self.free_block_queue.remove(block)\n            block.ref_cnt += 1\n",
                "                self.free_block_queue.remove(block)\n                block.ref_cnt += 1\n",
            ),
        },
        "vllm.v1.worker.gpu.model_runner": {
            "preempted requests keep their slots": (
                "finished_req_ids = finished_req_ids.union(preempted_req_ids)\n",
                "pass\n",
            ),
            "a request's first blocks are added to those of the slot": (
                "req_index, new_req_data.block_ids, overwrite=True\n",
                "req_index, new_req_data.block_ids, overwrite=False\n",
            ),
        },
        "vllm.v1.worker.gpu.model_states.mamba_hybrid": {
            "a reused slot begins with the accepted count of another request": (
                "        self.num_accepted_tokens_gpu[req_index].fill_(1)\n",
                "",
            ),
            "a hit begins in the column behind its block": (
                "(new_req_data.num_computed_tokens - 1) // mamba_block_size\n",
                "new_req_data.num_computed_tokens // mamba_block_size\n",
            ),
            "decodes without drafts lose the offset of the accepted ones": (
                "is_decode, num_draft_tokens_per_req, -1\n",
                "is_decode & (num_draft_tokens_per_req > 0), num_draft_tokens_per_req, -1\n",
            ),
        },
        "vllm.v1.worker.gpu.states": {
            "a hit is computed anew by the worker": (
                "self.num_computed_tokens.stage_write_elem(req_idx, num_computed_tokens)\n",
                "self.num_computed_tokens.stage_write_elem(req_idx, 0)\n",
            ),
        },
        "vllm.v1.worker.mamba_utils": {
            "the accepted count outlives a boundary": (
                "    tl.store(num_accepted_tokens_ptr + req_indices, 1, mask=mask & should_reset)\n",
                "",
            ),
        },
    }
)

PLANTED_BOUNDARIES = planted(
    {
        "vllm.v1.attention.backends.mamba_attn": {
            "rows read the column of their last scheduled token": (
                "        return (\n            block_idx_last_computed_token,\n",
                "        return (\n            block_idx_last_scheduled_token,\n",
            ),
            "the first scheduled token is in the column of the last computed one": (
                "                num_computed_tokens + mamba_block_size,\n",
                "                num_computed_tokens + mamba_block_size - 1,\n",
            ),
            "a chunk inside of a block is not finished first": (
                "            if this_num_computed % chunk_size != 0:\n",
                "            if False:\n",
            ),
        },
    },
    EVERY_BOUNDARY,
    "real-engine/v1",
)

PLANTED_UPDATES = planted(
    {
        "vllm.v1.attention.backends.gdn_attn": {
            "rows with drafts lose their last block": (
                "spec_indices = blk_table[masks, : self.num_spec + 1]\n",
                "spec_indices = blk_table[masks, : self.num_spec]\n",
            ),
            "rows without drafts get the block behind theirs": (
                "prefill_indices = blk_table[~masks, 0]\n",
                "prefill_indices = blk_table[~masks, 1]\n",
            ),
            "rows of padding keep the blocks of the other table": (
                (
                    "            spec_indices = self.spec_state_indices_tensor[:batch_size]\n"
                    "            spec_indices[m.num_spec_decodes :].fill_(NULL_BLOCK_ID)\n"
                ),
                "            spec_indices = self.spec_state_indices_tensor[:batch_size]\n",
            ),
            "decodes of a full graph keep the blocks of the other table": (
                (
                    "            self.non_spec_state_indices_tensor[: m.num_decodes].copy_(\n"
                    "                non_spec_indices, non_blocking=True\n"
                    "            )\n"
                    "            non_spec_indices = self"
                ),
                "            non_spec_indices = self",
            ),
        },
    },
    property_id="builder/update-gdn-block-table",
)

PLANTED_GRAPHS = planted(
    {
        "vllm.v1.attention.backends.gdn_attn": {
            "rows of padding keep the blocks of an earlier step": (
                "            spec_state_indices_tensor[num_spec_decodes:].fill_(NULL_BLOCK_ID)\n",
                "",
            ),
            "rows of padding stay marked": (
                "            spec_sequence_masks[num_spec_decodes:].fill_(False)\n",
                "",
            ),
            "rows of padding have the tokens of an earlier step": (
                "            spec_query_start_loc[num_spec_decodes + 1 :].fill_(spec_num_query_tokens)\n",
                "",
            ),
            "rows of padding keep accepted counts": (
                "            num_accepted_tokens[num_spec_decodes:].fill_(1)\n",
                "",
            ),
            "rows with drafts are not marked": (
                (
                    "            self.spec_sequence_masks[:num_spec_decodes].copy_(\n"
                    "                spec_sequence_masks[:num_spec_decodes], non_blocking=True\n"
                    "            )\n"
                ),
                "",
            ),
        },
    },
    property_id="builder/full-graph-drafts",
)


PLANTED_MIXUPS = planted(
    {
        "vllm.v1.worker.mamba_utils": {
            "the temporal state of the first layer is copied into every layer": (
                "    src_addr = state_base_addr + actual_src_block_id * state_block_stride\n",
                (
                    "    first = tl.load(state_base_addrs_ptr + state_idx % 2)\n"
                    "    src_addr = first + actual_src_block_id * state_block_stride\n"
                ),
            ),
            "the convolution is copied into the temporal state": (
                "    src_addr = state_base_addr + actual_src_block_id * state_block_stride\n",
                (
                    "    conv = tl.load(state_base_addrs_ptr + tl.maximum(state_idx - 1, 0))\n"
                    "    src_addr = conv + actual_src_block_id * state_block_stride\n"
                ),
            ),
            "recurrent groups are copied by the first group's table": (
                "            zip(block_tables, aligned_index_block_tables)\n",
                "            zip([block_tables[0]] * len(block_tables), aligned_index_block_tables)\n",
            ),
        },
    }
)
"""Layers, kinds and groups of layers that are exchanged."""

PLANTED_SIZES = planted(
    {
        "vllm.v1.core.sched.scheduler": {
            "a chunk ends at a block's end also where no step is as long as a block": (
                "            if aligned_end > start or block_size <= max_prefill_tokens:\n",
                "            if True:\n",
            ),
        },
        "vllm.v1.worker.mamba_utils": {
            "no more than four tokens count as accepted": (
                "    src_off = tl.maximum(num_accepted - 1, 0)\n",
                "    src_off = tl.minimum(tl.maximum(num_accepted - 1, 0), 3)\n",
            ),
            "no more than eight requests are advanced": (
                "    mask = offsets < num_reqs\n",
                "    mask = offsets < tl.minimum(num_reqs, 8)\n",
            ),
        },
    }
)
"""Limits that small scenarios do not come to."""


class Replanted(importlib.abc.MetaPathFinder):
    """Finds the defect's module in a changed copy, and leaves every other one alone."""

    def __init__(self, planted: PlantedDefect, folder: Path) -> None:
        self.planted, self.folder = planted, folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:  # noqa: ARG002 - importlib's
        if name != self.planted.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        assert found is not None
        assert found.origin is not None
        text = Path(found.origin).read_text(encoding="utf-8")
        count = text.count(self.planted.before)
        if count != 1:
            raise ValueError(
                f"{self.planted.before!r} stands in {name} {count} times, but should once [PlantedDefect]"
            )
        copy = self.folder / Path(found.origin).name
        copy.write_text(text.replace(self.planted.before, self.planted.after), encoding="utf-8")
        return importlib.util.spec_from_file_location(name, copy)


@contextmanager
def _released(planted: PlantedDefect) -> Iterator[Subject]:
    """The release with the defect. The process is the defect's from then on."""
    from statecheck.releases.project import PROJECTS
    from statecheck.subject import load

    with tempfile.TemporaryDirectory() as folder:
        sys.meta_path.insert(0, Replanted(planted, Path(folder)))
        # A defect of a stand-in for a connector is in the adapter.
        name = planted.module.removeprefix("subjects.").partition(".")[0]
        if planted.models:
            # A process of the model's own would import the release unchanged.
            vars(importlib.import_module(PROJECTS[name].adapter))["ISOLATED"] = False
            os.environ |= {"STATECHECK_MODELS": planted.models}
        subject = load(name)
        if subject.release != planted.release:
            rule = f"should be {planted.release}"
            raise ValueError(f"release = {subject.release!r}, but {rule} [PlantedDefect]")
        yield subject


def trials_of(planted: Sequence[PlantedDefect], *, shrinks: bool = False) -> tuple[LiveTrial, ...]:
    """One for each."""
    return tuple(
        LiveTrial(one.name, f"`{one.module}`", one.property_id, partial(_released, one), shrinks)
        for one in planted
    )


if __name__ == "__main__":
    chosen = (
        PLANTED_BOUNDARIES
        if version("vllm") == EVERY_BOUNDARY
        else (*PLANTED, *PLANTED_UPDATES, *PLANTED_GRAPHS, *PLANTED_MIXUPS, *PLANTED_SIZES)
    )
    print_table("tests.breakages.release", __doc__, "module", trials_of(chosen), MAX_EXAMPLES)
