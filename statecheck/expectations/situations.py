"""Situations of answers that are put together beside the oracle: of lists of pointers, and of captured graphs."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import oracle
from oracle.align.pointers import Entry
from oracle.rules import watches
from oracle.situations.refusals import Refusals
from oracle.situations.registry import Situation, declared, situations_of
from statecheck import expectations
from statecheck.case.values import Call
from statecheck.expectations import refusal_of
from statecheck.expectations.align_buffers import collected_lists, used_entries
from statecheck.expectations.builders import replayed

_EXCEPTIONS = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))
REFUSALS = Refusals(oracle, expectations, exceptions=_EXCEPTIONS["refusals"])
"""Of the rules, and of the types that arguments have to have before the rules are asked."""


def every_situation() -> dict[str, Situation]:
    """By name, of all modules that are imported, and every refusal; the first call reads the sources of all rules."""
    REFUSALS.declared()
    return declared()


_of_lists = situations_of("harness.expectations.align_buffers")
STAYS = _of_lists("a request that stays where it is adds no entry to the lists")
UNUSED = _of_lists("an entry without bytes is copied by a list of addresses")

_of_graphs = situations_of("harness.expectations.builders")
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


@watches(refusal_of)
def _refused(_: object, error: Exception) -> None:
    REFUSALS.note(error)
