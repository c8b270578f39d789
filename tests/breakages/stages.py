"""Defects planted where the stages of a release's engine hand batches on, and how many scenarios it takes to find each.

    .vllm/0.33.0/bin/python -m tests.breakages.stages

prints the table, for release 0.33.0; `--only <word>` tries those whose name has the word.
"""

from __future__ import annotations

from tests.breakages.release import planted, trials_of
from tests.breakages.scenarios import print_table

MAX_EXAMPLES = 300
_HANDLER = "vllm.v1.worker.gpu.pp_utils"
PLANTED_STAGES = planted(
    {
        _HANDLER: {
            "a stage does not wait for the sampled tokens of an earlier batch": (
                "        self.main_stream.wait_event(slot.event)\n",
                "",
            ),
            "a slot that was freed in between gets the tokens of its old request": (
                "exclude_mask = freed | ~slot.need_sampled_mask",
                "exclude_mask = ~slot.need_sampled_mask",
            ),
            "a stage takes sampled tokens a batch late": (
                "deque() if self.is_last_rank else deque([None] * ring_depth)",
                "deque() if self.is_last_rank else deque([None] * (ring_depth + 1))",
            ),
            "drafts do not come to the first stages": (
                "            draft_tokens=slot.draft_tokens,\n",
                "            draft_tokens=None,\n",
            ),
        },
        "vllm.v1.core.sched.async_scheduler": {
            "a request is decoded again before its token has come to all stages": (
                "        self.decode_stagger = self.pp_size\n",
                "        self.decode_stagger = 1\n",
            ),
        },
        "vllm.v1.worker.gpu.buffer_utils": {
            "memory of the host is for two batches": (
                "    _DEFAULT_MAX_CONCURRENCY = max(2, n)\n",
                "    _DEFAULT_MAX_CONCURRENCY = 2\n",
            ),
        },
        "vllm.v1.worker.gpu_worker": {
            "a stage overwrites what it still sends": (
                "            for handle in self._pp_send_work:\n                handle.wait()\n",
                "",
            ),
        },
        "vllm.v1.worker.gpu.model_states.mamba_hybrid": {
            "states are copied by the tables of a later batch": (
                "            [block_tables.block_tables[gid].gpu for gid in mamba_group_ids],\n",
                "            [block_tables.input_block_tables[gid] for gid in mamba_group_ids],\n",
            ),
        },
        "vllm.v1.worker.gpu.model_runner": {
            "a stage keeps the accepted count of an earlier batch for a chunk of a prompt": (
                "            if not all_decode_next:\n",
                "            if False:\n",
            ),
            "a stage before the last does not count its computed tokens": (
                "            self.postprocess_num_computed_tokens(input_batch)\n            if not",
                "            if not",
            ),
        },
    },
    property_id="real-engine/stages-v2",
)


if __name__ == "__main__":
    print_table("tests.breakages.stages", __doc__, "module", trials_of(PLANTED_STAGES), MAX_EXAMPLES)
