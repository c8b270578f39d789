"""Situations of answers that are put together beside the oracle: of lists of pointers, and of captured graphs."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.align.pointers import Entry
from statecheck.case.values import Call
from statecheck.reference.align_values import collected_lists, used_entries
from statecheck.reference.builders import replayed
from statecheck.reference.situations import situations_of, watches

_of_lists = situations_of("harness.reference.align_buffers")
STAYS = _of_lists("a request that stays where it is adds no entry to the lists")
UNUSED = _of_lists("an entry without bytes is copied by a list of addresses")

_of_graphs = situations_of("harness.reference.builders")
REPLAYED = _of_graphs("a captured graph is replayed for another step", device="cuda")
REPLAYED_PADDED = _of_graphs("a captured graph is replayed with padded rows", device="cuda")


@watches(collected_lists)
def _collected(_: object, call: Call) -> None:
    named = call.named
    STAYS.reached_if(named["src_col"] == named["dst_col"] and named["bias"] == 0)


@watches(used_entries)
def _listed(answer: Sequence[Entry], sizes: Sequence[int]) -> None:
    UNUSED.reached_if(len(answer) < len(sizes))


@watches(replayed)
def _graph(_: object, latest: Call) -> None:
    starts = latest.named["common_attn_metadata"]["query_start_loc_cpu"].values()
    REPLAYED.reached()
    REPLAYED_PADDED.reached_if(starts[-2:] == (starts[-1],) * 2)
