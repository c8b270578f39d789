"""What a failing case means: the rule that was broken and where it stands, and how it would show in a served text."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from statecheck.case import Case
from statecheck.case.cause import cause_of, first_wrong_call
from statecheck.case.values import Raised, Refusal
from statecheck.expectations.symbols import MANIFEST, Symbol
from statecheck.report.scenario_timeline import broken_law

_BETTER_SAID_BY = dict.fromkeys(
    ("align/decisions.after_v1_steps", "align/decisions.after_v2_steps"), "align/decisions.after_step"
)
"""Rules that only say for which rows another one decides."""
_SOURCE = re.compile(r"\bSource:\s+(.*?)\.?\s*\Z", re.DOTALL)
_KINDS = {
    "memory": "Memory of another request, or of a prefix that others continue from, is overwritten: they continue from a wrong state.",
    "race": "Right most of the time and wrong now and then: which program of a kernel comes first decides what a request continues from.",
    "fault": "The server dies in the middle of a step, with every request that it has.",
    "hang": "The server stops answering: a step never ends.",
}
"""By the kind of the failure, where that says more than which function it was."""
_FUNCTIONS = (
    (
        ("*precopy*", "preprocess_mamba"),
        (
            "A request that comes to a new block continues from a state that is not its own: from there on its text is another one, "
            "without any error."
        ),
    ),
    (
        ("preprocess_mamba_align_fused_kernel",),
        "A request is computed in the wrong block: it continues from a state of other tokens, without any error.",
    ),
    (
        ("*postprocess*", "stage_*"),
        (
            "The prefix cache hands out a state of other tokens, or drafts that were turned down stay in it: a request resumed from "
            "it continues from the state of another text."
        ),
    ),
    (
        ("cleanup_mamba_state_idx",),
        "A request that was preempted and comes back continues from the block that it had before, which may be another one's now.",
    ),
    (
        ("*memcpy*", "do_mamba_copy_block", "collect_mamba_copy_meta", "*_copy_spec"),
        "A state comes along from the wrong place, or in part: the request continues from other tokens than its own.",
    ),
    (
        (
            "MambaSpecDecodeGPUContext.*",
            "MambaBuffers.*",
            "MambaCopyBuffers.*",
            "get_mamba_groups",
            "CpuGpuBuffer*",
        ),
        "Kernels get the wrong addresses of states: requests continue from a state that is not theirs.",
    ),
    (
        ("*MetadataBuilder*",),
        (
            "A layer's kernels are sent to the wrong rows or blocks: a new request begins from an old one's state, or a running one "
            "loses its own."
        ),
    ),
    (
        ("split_decodes_and_prefills",),
        "A prompt is taken for a decode, or the other way round: it begins from a state that is not its own.",
    ),
    (
        ("mamba_get_block_table_tensor", "CommonAttentionMetadata.*"),
        "Requests read and write the states of other columns or lengths: their texts go on from other tokens.",
    ),
    (
        ("compute_varlen_chunk_metadata", "compute_causal_conv1d_metadata", "prepare_chunk_*"),
        "Prompts of a batch are cut in the wrong places: the state of one request runs into its neighbour's.",
    ),
    (
        ("MambaStateShapeCalculator.*", "MambaSpec.*", "*conv_state*"),
        "States have the wrong size or orientation: the server does not start, or ranks and blocks overlap without any error.",
    ),
)
_RAISED = "Requests end with an error, in a step that is in order."
_NOT_REFUSED = "What is wrong goes on unnoticed: requests continue from what should have been turned down."
_REFUSED_OTHERWISE = (
    "None: the input is turned down, with another error than the one that says what is wrong with it."
)
_OUTPUT = "The text itself differs from what the model says without batches, chunks, drafts and caches."
_LAWS = {
    "written": _KINDS["memory"],
    "published": (
        "The prefix cache hands out a state of other tokens: a request that hits it continues from the state of another text, "
        "without any error."
    ),
    "owned": "Two requests come to use one block: each continues from what the other one has written there.",
    "free": "Blocks are lost, or counted twice: the server holds fewer and fewer requests, or two come to use one block.",
    "left": "Blocks or slots are lost with every such request: the server holds fewer and fewer of them, until it stands still.",
    "output": _OUTPUT,
}
"""By the law that a whole engine breaks first; all others are about what a forward reads."""
_SCENARIOS = "A request continues from a state that is not the one after its own tokens: its text is another one, without any error."


@dataclass(frozen=True)
class Rule:
    """A rule in a sentence or two, and its place in the documents or the contract."""

    words: str
    source: str


def rule_of(case: Case) -> Rule | None:
    """The rule of the call that went wrong first; None where there is none, or it has no words."""
    cause = cause_of(case)
    symbol = _symbol(cause.function)
    if symbol is None or "." not in symbol.oracle:
        return None
    text = _docstring(symbol.oracle)
    words = _docstring(_BETTER_SAID_BY.get(symbol.oracle, symbol.oracle)).partition("\n\n")[0]
    words = " ".join(words.partition("Source:")[0].split())
    source = _SOURCE.search(text)
    named = " ".join(source[1].split()) if source is not None else _place_of(symbol)
    named += f"; PROTOCOL.md, `{cause.own}`" if cause.own else ""
    return Rule(words, named) if words else None


def _symbol(function: str) -> Symbol | None:
    """The documented symbol of that name, or the one that stands for it, such as a base class's method."""
    plain = function.removesuffix(".fget")
    exact = (symbol for symbol in MANIFEST if symbol.name == plain)
    return next(exact, None) or next((one for one in MANIFEST if plain in one.functions), None)


def _place_of(symbol: Symbol) -> str:
    document = symbol.document if symbol.document.startswith("contract") else f"document {symbol.document}"
    return f"{document}, `{symbol.name}`"


def _docstring(rule: str) -> str:
    topic, _, name = rule.partition(".")
    found = getattr(importlib.import_module(f"oracle.{topic.replace('/', '.')}"), name)
    # A constant has the docstring of its type.
    return (inspect.getdoc(found) or "") if inspect.isroutine(found) or inspect.isclass(found) else ""


def served_text(case: Case) -> str:
    """What a served text would show of it, in a sentence; "" where nothing is known of what was called."""
    failure = case.failure
    if failure is None:
        return ""
    if failure.kind in _KINDS:
        return _KINDS[failure.kind]
    if failure.kind == "refusal":
        return _refusal(case)
    if failure.place == "output":
        return _OUTPUT
    broken = broken_law(case)
    if broken:
        return _LAWS.get(broken, _SCENARIOS)
    cause = cause_of(case)
    named = (
        words for patterns, words in _FUNCTIONS if any(fnmatchcase(cause.function, one) for one in patterns)
    )
    return next(named, _SCENARIOS if case.timeline is not None else "")


def _refusal(case: Case) -> str:
    """A call raised that should return, or the other way round, or it raised something else."""
    number = first_wrong_call(case)
    if number is None or not isinstance(case.expected[number], Refusal):
        return _RAISED
    return _REFUSED_OTHERWISE if isinstance(case.actual[number], Raised) else _NOT_REFUSED
