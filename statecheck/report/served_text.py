"""What a user of a server would see of a failing case: a sentence, chosen by the failure's kind, the broken law or the function."""

from __future__ import annotations

from fnmatch import fnmatchcase

from statecheck.case import Case
from statecheck.case.cause import cause_of, first_wrong_call
from statecheck.case.values import Raised, Refusal
from statecheck.report.scenario_timeline import broken_law

_KINDS = {
    "memory": "The step overwrites memory of another request or of a cached prefix. Requests that continue from this memory get a wrong text.",
    "race": "The result depends on which program of a kernel runs first: the text is right most of the time, and sometimes wrong.",
    "fault": "The server dies in the middle of a step, and all of its requests with it.",
    "hang": "A step never ends, and the server stops answering.",
}
"""By the kind of the failure, where the kind says more than the function."""
_WRONG_STATE = "A request continues from a state that does not belong to its tokens: its text is wrong, without any error."
_FUNCTIONS = (
    (("*precopy*", "preprocess_mamba"), f"{_WRONG_STATE} This happens when the request enters a new block."),
    (("preprocess_mamba_align_fused_kernel",), f"{_WRONG_STATE} The step computes it in the wrong block."),
    (
        ("*postprocess*", "stage_*"),
        "The prefix cache keeps a wrong state, such as a state with rejected drafts. A request that resumes from this state gets a wrong text.",
    ),
    (
        ("cleanup_mamba_state_idx",),
        "A preempted request continues from its earlier block, which another request may own by then.",
    ),
    (
        ("*memcpy*", "do_mamba_copy_block", "collect_mamba_copy_meta", "*_copy_spec"),
        f"{_WRONG_STATE} A copy takes the state from a wrong address, or copies a part of it.",
    ),
    (
        (
            "MambaSpecDecodeGPUContext.*",
            "MambaBuffers.*",
            "MambaCopyBuffers.*",
            "get_mamba_groups",
            "CpuGpuBuffer*",
        ),
        f"{_WRONG_STATE} Kernels get wrong addresses of states.",
    ),
    (
        ("*MetadataBuilder*",),
        "A layer's kernels get wrong rows or blocks: a new request begins with an old state, or a running request loses its state.",
    ),
    (
        ("split_decodes_and_prefills",),
        "A prompt counts as a decode, or a decode as a prompt: the request begins with a wrong state.",
    ),
    (
        ("mamba_get_block_table_tensor", "CommonAttentionMetadata.*"),
        "Requests read and write states of wrong columns or lengths: their texts are wrong, without any error.",
    ),
    (
        ("compute_varlen_chunk_metadata", "compute_causal_conv1d_metadata", "prepare_chunk_*"),
        "The prompts of a batch are cut in wrong places: a request's state contains tokens of its neighbour.",
    ),
    (
        ("MambaStateShapeCalculator.*", "MambaSpec.*", "*conv_state*"),
        "States have a wrong size or orientation: the server does not start, or states overlap without any error.",
    ),
)
_RAISED = "A correct step raises an error, and its requests end."
_NOT_REFUSED = "Wrong input is accepted, and requests continue from what it led to."
_REFUSED_OTHERWISE = (
    "Nothing: the input is refused, but the error does not name what is wrong with the input."
)
_OUTPUT = "The text differs from the model's text without batches, chunks, drafts and caches."
_LAWS = {
    "written": _KINDS["memory"],
    "published": "The prefix cache keeps a state of other tokens. A request that hits this state gets a wrong text, without any error.",
    "owned": "Two requests own one block: each continues from what the other has written.",
    "free": "Blocks are lost or counted twice: the server can hold fewer and fewer requests, or two requests get one block.",
    "left": "Each such request leaks blocks or slots, until the server can start no request.",
    "output": _OUTPUT,
}
"""By the law that an engine breaks first; all other laws are about what a forward reads."""


def served_text(case: Case) -> str:
    """The sentence; "" if the case has no failure, or nothing is known of the function that was called."""
    failure = case.failure
    if failure is None:
        return ""
    if failure.kind in _KINDS:
        return _KINDS[failure.kind]
    if failure.kind == "refusal":
        return _of_refusal(case)
    if failure.place == "output":
        return _OUTPUT
    if law := broken_law(case):
        return _LAWS.get(law, _WRONG_STATE)
    function = cause_of(case).function
    sentences = (text for patterns, text in _FUNCTIONS if any(fnmatchcase(function, one) for one in patterns))
    return next(sentences, _WRONG_STATE if case.timeline is not None else "")


def _of_refusal(case: Case) -> str:
    """The sentence for a call that raised and should return, or the other way round, or that raised another error."""
    number = first_wrong_call(case)
    if number is None or not isinstance(case.expected[number], Refusal):
        return _RAISED
    return _REFUSED_OTHERWISE if isinstance(case.actual[number], Raised) else _NOT_REFUSED
