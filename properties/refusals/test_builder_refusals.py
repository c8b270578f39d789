"""Bad input of the builders, one kind at a time: a `ValueError` names the argument, and no builder's memory is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from properties.strategies.builder_sessions import captured_step
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from properties.strategies.forms import WrongForm, with_value, wrong_ints, wrong_tensors
from statecheck.case.values import Call, Name, Tensor, boolean, int32
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import PROPERTIES, prop, written_examples

COMMON = "common_attn_metadata"
COUNTS, DRAFTS = "num_accepted_tokens", "num_decode_draft_tokens_cpu"
BOUNDS = f"{COMMON}.seq_lens_cpu_upper_bound"
SETUPS = {
    "mamba1": BuilderSetup("mamba1"),
    "mamba2": BuilderSetup("mamba2", num_spec=2),
    "gdn": BuilderSetup("gdn", num_spec=2),
}
DECODE, DRAFTED, PROMPT = StepRequest(1, 4), StepRequest(3, 4, drafts=2), StepRequest(5, 0, prefilling=True)


@dataclass(frozen=True)
class BadBuild:
    """A call with one bad argument after those that are in order; `name` says what is wrong with it."""

    name: str
    before: tuple[Call, ...]
    call: Call


def build(kind: str, *rows: StepRequest, **about: Any) -> Call:
    """A step of this builder; of a decode and a prompt where no rows are given."""
    return replace(BuildCall(rows or (DECODE, PROMPT)), **about).build(SETUPS[kind])


def bad(name: str, kind: str, call: Call, setup: BuilderSetup | None = None, *before: Call) -> BadBuild:
    constructed = (setup or SETUPS[kind]).construct()
    return BadBuild(f"{name}, {kind}", (constructed, *before), call)


def changed(kind: str, path: str, value: object) -> Call:
    return with_value(build(kind), path, value)


def constructions() -> Iterator[BadBuild]:
    for kind, setup in SETUPS.items():
        spec, rows = "kv_cache_spec", "vllm_config.scheduler_config.max_num_seqs"
        paths = f"{spec}.block_size", f"{spec}.num_speculative_blocks", rows
        for form in wrong_ints(setup.construct(), *paths):
            yield BadBuild(f"{form.name}, {kind}", (), form.call)
        if kind != "gdn":
            in_all = replace(setup, mode="all").construct()
            for form in wrong_ints(in_all, "vllm_config.model_config.max_model_len"):
                yield BadBuild(f"{form.name}, {kind} in mode all", (), form.call)
            unbounded = replace(setup, mode="all", max_model_len=0).construct()
            yield BadBuild(f"a longest request of no token, {kind}", (), unbounded)
    sizes: tuple[Any, ...] = (True, 2.0, 0)
    for size in sizes:
        yield BadBuild(f"chunks of {size}", (), replace(SETUPS["mamba2"], chunk_size=size).construct())


def forms() -> Iterator[BadBuild]:
    """Tensors of another type, and those that have not a row for each request."""
    vectors = {
        f"{COMMON}.query_start_loc_cpu": int32([0, 1]).on_host(),
        f"{COMMON}.seq_lens": int32([5]),
        f"{COMMON}.block_table_tensor": int32([[1] * 11]),
        f"{COMMON}.is_prefilling": boolean([False]).on_host(),
        BOUNDS: int32([5]).on_host(),
        COUNTS: int32([]),
        DRAFTS: int32([-1]).on_host(),
    }
    for kind in SETUPS:
        known = [
            path
            for path in vectors
            if (path != DRAFTS or kind == "gdn") and (path != COUNTS or kind != "mamba1")
        ]
        found: list[WrongForm] = [*wrong_tensors(build(kind), *known)]
        found += [WrongForm(f"{path} for too few rows", changed(kind, path, vectors[path])) for path in known]
        found += wrong_ints(build(kind), f"{COMMON}.max_query_len", f"{COMMON}.num_actual_tokens")
        yield from (bad(form.name, kind, form.call) for form in found)


def values() -> Iterator[BadBuild]:
    for kind, setup in SETUPS.items():
        yield bad(
            "starts that step back",
            kind,
            changed(kind, f"{COMMON}.query_start_loc_cpu", int32([0, 6, 1]).on_host()),
        )
        yield bad("a maximum below the longest query", kind, changed(kind, f"{COMMON}.max_query_len", 4))
        yield bad("fewer tokens than the starts count", kind, changed(kind, f"{COMMON}.num_actual_tokens", 5))
        yield bad("a bound below the query", kind, changed(kind, BOUNDS, int32([5, 4]).on_host()))
        narrow = replace(setup, mode="none", num_spec=0, block_size=64, max_model_len=8)
        table = Tensor("int32", (2, 0), ())
        yield bad(
            "a table without columns",
            kind,
            with_value(BuildCall((DECODE, PROMPT)).build(narrow), f"{COMMON}.block_table_tensor", table),
            narrow,
        )
    yield from narrow_tables()
    yield bad("more drafts than there may be", "gdn", build("gdn", replace(DRAFTED, drafts=3)))
    yield bad("more tokens and drafts than there may be", "gdn", build("gdn", StepRequest(4, 4, drafts=3)))
    yield bad("drafts below -1", "gdn", build("gdn", replace(DRAFTED, drafts=-2)))
    yield bad("drafts that are not all tokens but one", "gdn", build("gdn", replace(DRAFTED, drafts=1)))
    yield bad("drafts without counts", "gdn", build("gdn", DRAFTED, counts=False))


def narrow_tables() -> Iterator[BadBuild]:
    """Tables with a column too few for the states of a row."""
    for kind, setup in _with_few_states():
        columns = 1 + setup.num_spec + setup.spare_blocks - 1
        for name, rows in (("", (DECODE, PROMPT)), (", decodes", (DECODE, DECODE))):
            yield _narrow(f"room for a state too few{name}", kind, setup, columns, BuildCall(rows))


def _with_few_states() -> Iterator[tuple[str, BuilderSetup]]:
    for kind, plain in SETUPS.items():
        for mode, spare in (("none", 0), ("align", 0), ("align", 1)):
            yield kind, replace(plain, mode=mode, spare_blocks=spare, full_cudagraphs=True)


def _narrow(name: str, kind: str, setup: BuilderSetup, columns: int, step: BuildCall) -> BadBuild:
    table = Tensor("int32", (2, columns), (1,) * (2 * columns))
    call = with_value(step.build(setup), f"{COMMON}.block_table_tensor", table)
    return bad(f"{name}, mode {setup.mode}, {setup.spare_blocks} spare", kind, call, setup)


def lengths_on_the_host() -> Iterator[BadBuild]:
    """Tables with a column too few for the tokens of a row, whose lengths a builder reads because they lie on the host."""
    lengthy = BuildCall((StepRequest(1, 4), StepRequest(1, 3)), host_lengths=True)
    for kind, setup in _with_few_states():
        if setup.mode == "align":
            columns = 1 + setup.num_spec + setup.spare_blocks
            yield _narrow("room for a token too few", kind, setup, columns, lengthy)
    for kind in ("mamba1", "mamba2"):
        setup = replace(SETUPS[kind], num_spec=0)
        for mode, width in (("none", 0), ("align", 1)):
            elsewhere = replace(setup, mode=mode)
            table = Tensor("int32", (2, width), (1,) * (2 * width))
            narrow = with_value(_update(setup), "blk_table", table)
            yield bad(
                f"a table of {width} columns, mode {mode}", kind, narrow, elsewhere, lengthy.build(elsewhere)
            )


def counts_on_the_host() -> Iterator[BadBuild]:
    """Counts that a builder reads, because they lie on the host: on a GPU, it does not wait for them."""
    yield bad(
        "an accepted count of 0", "mamba2", build("mamba2", replace(DECODE, accepted=0), host_lengths=True)
    )
    yield bad(
        "an accepted count above 1 and the drafts",
        "gdn",
        build("gdn", replace(DRAFTED, accepted=4), host_lengths=True),
    )
    for kind, row, drafts in (("mamba2", DECODE, -1), ("gdn", DRAFTED, 2)):
        for accepted in (0, 4):
            rows = row, replace(row, accepted=accepted, drafts=drafts), row
            yield bad(
                f"an accepted count of {accepted} between others", kind, build(kind, *rows, host_lengths=True)
            )
    without_hints = {"marks": False, "bounds": False, "host_lengths": True}
    yield bad(
        "a count of a decode without drafts that would be lost",
        "gdn",
        build("gdn", replace(DECODE, accepted=2), DECODE, **without_hints),
    )
    prompt = replace(PROMPT, num_computed=4, accepted=2)
    yield bad("an accepted count that would be lost", "gdn", build("gdn", prompt, host_lengths=True))


def captures() -> Iterator[BadBuild]:
    for kind, setup in SETUPS.items():
        small = replace(setup, full_cudagraphs=True, max_num_seqs=1)
        rows = small.capture_rows
        yield bad("a graph of more rows than there may be", kind, captured_step(small, rows + 1, 0), small)
        roomy = replace(small, max_num_seqs=2)
        long = captured_step(replace(roomy, num_spec=roomy.num_spec + 1), 1, 0)
        yield bad("a graph of longer queries than decodes have", kind, long, roomy)


def updates() -> Iterator[BadBuild]:
    for kind in ("mamba1", "mamba2"):
        setup = replace(SETUPS[kind], num_spec=0)
        update = _update(setup)
        columns = UPDATED.block_table(setup).shape[1]
        for form in (
            *wrong_tensors(update, "blk_table"),
            WrongForm("a table for too few rows", with_value(update, "blk_table", int32([[1] * columns]))),
        ):
            yield bad(form.name, kind, form.call, setup, UPDATED.build(setup))
        if kind == "mamba2":
            drafting = SETUPS[kind]
            other = with_value(update, "blk_table", UPDATED.block_table(drafting))
            yield bad("another table under speculation", kind, other, drafting, UPDATED.build(drafting))


UPDATED = BuildCall((DECODE, PROMPT))


def _update(setup: BuilderSetup) -> Call:
    arguments = {
        "self": Name("builder"),
        "metadata": Name("metadata"),
        "blk_table": UPDATED.block_table(setup),
        "slot_mapping": Tensor("int64", (0,), ()),
    }
    return Call(f"{setup.builder}.update_block_table", tuple(arguments.items()), by_content=True)


BAD_INPUTS = (*constructions(), *forms(), *values(), *captures(), *updates())
ON_THE_HOST = (*counts_on_the_host(), *lengths_on_the_host())


@prop(
    "bad-input/builders",
    "refusal",
    *sorted({bad.call.function for bad in BAD_INPUTS}),
    bad=st.sampled_from(BAD_INPUTS),
)
def test_bad_input_of_a_builder_is_refused_by_name(trial: Trial, bad: BadBuild) -> None:
    if bad.before:
        trial.agrees(*bad.before)
    trial.refuses(bad.call)


@prop(
    "bad-input/counts-on-host",
    "refusal",
    *sorted({bad.call.function for bad in ON_THE_HOST}),
    device="cpu",
    bad=st.sampled_from(ON_THE_HOST),
)
def test_counts_and_lengths_on_the_host_that_no_step_has_are_refused(trial: Trial, bad: BadBuild) -> None:
    trial.agrees(*bad.before)
    trial.refuses(bad.call)


@written_examples(
    "bad_input_of_a_builder_is_refused_by_name",
    "bad",
    BAD_INPUTS,
    lambda bad: f"{bad.call.function}, {bad.name}",
)
def test_each_bad_input_of_a_builder_is_refused(trial: Bench, bad: BadBuild) -> None:
    PROPERTIES["bad_input_of_a_builder_is_refused_by_name"].example(trial, bad=bad)
