"""Defects planted around connectors, in our own and in a copy of a release's files, and how many scenarios it takes to find each.

    .vllm/0.33.0/bin/python -m tests.breakages.connectors

prints the table, for release 0.33.0, as `tests.breakages.release` does. The laws know nothing of them.
"""

from __future__ import annotations

from tests.breakages.release import MAX_EXAMPLES, planted, trials_of
from tests.breakages.scenarios import print_table

CONNECTORS = planted(
    {
        "subjects.vllm.engine.transfers": {
            "the connector loads the state of another block": (
                "            kept = self.store[move.group, move.prefix]\n",
                "            kept = next(kept for (group, _), kept in self.store.items() if group == move.group)\n",
            ),
            "the connector loads the states of the first layer into every layer": (
                "            kept = self.store[move.group, move.prefix]\n",
                (
                    "            kept, layers = self.store[move.group, move.prefix], len(self.names[move.group])\n"
                    "            kept = kept[: len(kept) // layers] * layers\n"
                ),
            ),
            "the connector says too early that a load is done": (
                "                self.write(one)\n",
                "                self.write(one) if one.sync else self.begin((dataclasses.replace(one, sync=True, steps=1),), ())\n",
            ),
            "the connector saves the block before the one that it was asked for": (
                "states[move.block].clone() for states",
                "states[move.block - 1].clone() for states",
            ),
        },
        "vllm.v1.core.sched.scheduler": {
            "blocks of a request that goes away are freed while they are loaded": (
                "                delay_free_blocks = (\n                    self.deferred_loads.pop",
                "                delay_free_blocks = False and (\n                    self.deferred_loads.pop",
            ),
            "blocks may be hit while they are loaded": (
                "delay_cache_blocks=load_kv_async,\n",
                "delay_cache_blocks=False,\n",
            ),
            "blocks of a request that is gone are freed while they are saved": (
                "        if not delay_free_blocks:\n            self._free_blocks(request)\n",
                "        if True:\n            self._free_blocks(request)\n",
            ),
            "a failed load counts as one that is done": (
                "                    request.num_computed_tokens = 0\n                    self.failed_recving",
                "                    self.failed_recving",
            ),
        },
    },
    property_id="real-engine/connector-v2",
)


if __name__ == "__main__":
    print_table("tests.breakages.connectors", __doc__, "module", trials_of(CONNECTORS), MAX_EXAMPLES)
