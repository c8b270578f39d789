"""Conditions about calls of functions: what a defect of a release makes of a call whose rules are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, pairwise
from math import exp, isfinite

from oracle.builders.base import kept_width
from oracle.builders.batch import is_prefill
from statecheck.case import Case
from statecheck.case.failure import outcome_difference
from statecheck.case.values import Bounded, Call, Expected, Outcome, Record, Returned, Tensor, Value
from statecheck.execution.run import Follower, recorded
from statecheck.reference import answer
from statecheck.reference.builders import config_of, step_of
from statecheck.reference.recurrences import FloatMemory
from statecheck.subject.known import Condition
from statecheck.subject.profile import DOCUMENTS, Profile

_SPLIT = "split_decodes_and_prefills"
_GDN = "GDNAttentionMetadataBuilder"
_COMMON = "common_attn_metadata"
_COUNTS = "num_accepted_tokens"
_OWNED = "harness.owned_fields"
_HOST_KNOWS = ("is_prefilling", "seq_lens_cpu_upper_bound")


@dataclass(frozen=True)
class ExecutedCall:
    """A call with its names resolved, what the rules of the release expect of it, and what came of it."""

    call: Call
    expected: Expected
    actual: Outcome
    device: str
    profile: Profile
    memory: Mapping[str, Value] = field(default_factory=dict)
    """What is known before the call."""

    def is_as(self, expected: Expected) -> bool:
        """Whether what came of it is this."""
        return outcome_difference(expected, self.actual, places=self.device != "cpu") is None

    @property
    def deviates(self) -> bool:
        """Whether what came of it is not what the rules expect."""
        return not self.is_as(self.expected)


def _calls_of(case: Case, profile: Profile) -> Iterator[ExecutedCall]:
    """The calls of a case, in order, on a release."""
    outcomes, expectation, memories = iter(case.actual), recorded(case.expected), []

    def expected(call: Call, known: Mapping[str, Value]) -> Expected:
        memories.append(known)
        return expectation(call, known)

    for _, resolved in Follower(expected).follow(case.steps):
        if resolved is not None:
            yield ExecutedCall(
                resolved.call, resolved.expected, next(outcomes), case.device, profile, memories[-1]
            )


def _some_call(holds: Callable[[Call, Profile], bool]) -> Callable[[Case, Profile], bool]:
    """Whether it holds of some call of a case on the release."""
    return lambda case, profile: any(holds(execution.call, profile) for execution in _calls_of(case, profile))


def _explained(case: Case, profile: Profile, rules: Callable[[ExecutedCall], Iterable[Expected]]) -> bool:
    """Whether some call deviates from the rules, and each that does is as these other rules have it.

    Of a scenario only the last call is looked at: what came of those before it did not matter.
    """
    wrong = [execution for execution in _calls_of(case, profile) if execution.deviates]
    if case.failure is not None and not case.failure.function:
        wrong = wrong[-1:]
    return bool(wrong) and all(
        any(execution.is_as(other) for other in rules(execution)) for execution in wrong
    )


def _with_argument(call: Call, name: str, value: Value) -> Call:
    """The call with another value of an argument that it has."""
    arguments, keywords = (
        tuple((key, value if key == name else old) for key, old in pairs)
        for pairs in (call.arguments, call.keywords)
    )
    return replace(call, arguments=arguments, keywords=keywords)


# Batches that are split.


def _is_padded(call: Call) -> bool:
    """Rows in their prompt are to be prefills in a uniform batch with padding."""
    if call.function != _SPLIT:
        return False
    options = call.named
    asks_for_both = options["require_uniform"] and not options["treat_short_extends_as_decodes"]
    return bool(asks_for_both and 0 in _lens(call))


def _lens(call: Call) -> tuple[int, ...]:
    starts = call.named[_COMMON]["query_start_loc_cpu"].values()
    return tuple(end - start for start, end in pairwise(starts))


def _padding_is_prefill(case: Case, profile: Profile) -> bool:
    """Every wrong split has its first prefill at the first row of padding."""

    def rules(execution: ExecutedCall) -> Iterator[Expected]:
        if _is_padded(execution.call):
            lens, tokens = _lens(execution.call), execution.call.named[_COMMON]["num_actual_tokens"]
            first = lens.index(0)
            before = sum(lens[:first])
            yield Returned((first, len(lens) - first, before, tokens - before))

    return _explained(case, profile, rules)


# Builders.


def _builds(call: Call, gdn: bool) -> bool:
    return ".build" in call.function and call.function.startswith(_GDN) is gdn


def _dropped(call: Call) -> tuple[int, ...]:
    """The rows whose accepted tokens GDN forgets: decodes that drafted nothing, where they are marked so, or none drafted."""
    if not _builds(call, gdn=True) or call.named.get(_COUNTS) is None:
        return ()
    # The number of drafts is configured alike in every release.
    step, num_spec = step_of(call), config_of(call.named["self"], DOCUMENTS).num_spec
    undrafted = all((row.drafts or 0) <= 0 for row in step.rows)
    return tuple(
        number
        for number, row in enumerate(step.rows)
        if num_spec and row.query_len and not is_prefill(step, row) and (undrafted or row.drafts == -1)
    )


def _drops(call: Call) -> bool:
    return bool(_dropped(call))


def _as_accepted_one(call: Call) -> Call:
    """The rows that GDN forgets have accepted one token."""
    counts: Tensor = call.named[_COUNTS]
    forgotten = _dropped(call)
    values = tuple(1 if row in forgotten else count for row, count in enumerate(counts.values()))
    return _with_argument(call, _COUNTS, replace(counts.dense(), elements=values))


def _has_first_token(call: Call) -> bool:
    """A prompt's first token comes, alone, before any longer row."""
    if not _builds(call, gdn=True):
        return False
    step = step_of(call)
    short = next((r for r, row in enumerate(step.rows) if row.query_len > 1), len(step.rows))
    return any(row.query_len == 1 and row.num_computed == 0 for row in step.rows[:short])


def _by_length(call: Call) -> Call:
    """The host does not know which rows are in their prompt."""
    common: Record = call.named[_COMMON]
    fields = tuple((name, None if name in _HOST_KNOWS else value) for name, value in common.fields)
    return _with_argument(call, _COMMON, replace(common, fields=fields))


_CHANGES: Mapping[Callable[[Call], bool], Callable[[Call], Call]] = {
    _drops: _as_accepted_one,
    _has_first_token: _by_length,
}
"""By when GDN goes wrong, the call whose rules it follows then."""


def _gdn_answers(execution: ExecutedCall, defect: Callable[[Call], bool]) -> Iterator[Expected]:
    """Results of GDN with the defect, alone and with other defects of GDN, or the contents of its buffers then."""
    build = execution.call.named["result"] if execution.call.function == _OWNED else execution.call
    if not defect(build):
        return
    others = [other for other in _CHANGES if other is not defect and other(build)]
    for together in chain.from_iterable(combinations(others, size) for size in range(len(others) + 1)):
        changed = build
        for gdn_defect in (*together, defect):
            changed = _CHANGES[gdn_defect](changed)
        asked = _with_argument(execution.call, "result", changed) if build is not execution.call else changed
        yield answer(asked, None, replace(execution.profile, gdn_plain_decodes=True))


def _explained_by_gdn(defect: Callable[[Call], bool]) -> Callable[[Case, Profile], bool]:
    """Whether all that is wrong is what GDN gives with the defect."""
    return lambda case, profile: _explained(case, profile, lambda execution: _gdn_answers(execution, defect))


def _table_is_wider(call: Call, profile: Profile) -> bool:
    """Mode "all" has to copy a table into the buffers of full graphs that is wider than these."""
    if not _builds(call, gdn=False):
        return False
    step, config = step_of(call), config_of(call.named["self"], profile)
    wide = bool(step.rows) and len(step.rows[0].blocks) > kept_width(config)
    return config.mode == "all" and config.full_cudagraphs and wide


# Results that are remembered.


def _repeats_an_earlier_result(case: Case, profile: Profile) -> bool:
    """Every wrong result is what an earlier call of the same function gave."""
    earlier: list[ExecutedCall] = []
    for execution in _calls_of(case, profile):
        same = (other for other in earlier if other.call.function == execution.call.function)
        if execution.deviates and not any(execution.is_as(other.expected) for other in same):
            return False
        earlier.append(execution)
    return any(execution.deviates for execution in earlier)


# States that are sent between engines of unequal numbers of ranks.


def _unequal_ranks(case: Case, _: Profile) -> bool:
    sent = case.calls[-1].named
    return bool(sent["source_tp"] != sent["target_tp"])


def _one_group_for_unequal_ranks(case: Case, profile: Profile) -> bool:
    """Each rank has the one group of a Mamba-2 model, and the engines have unequal numbers of ranks."""
    sent = case.calls[-1].named
    groups = dict(sent["sizes"]).get("n_groups")
    return sent["family"] == "mamba2" and groups == 1 and _unequal_ranks(case, profile)


# Kernels of recurrences.

_LIGHTNING_BLOCK = 256
"""Tokens of a block of lightning attention, behind each of which a state is computed."""
_FLOAT32 = 2.0**-22
"""Four roundings of float32."""


def _lightning_behind_a_state(case: Case, profile: Profile) -> bool:
    """All that is wrong are outputs of lightning attention of tokens that have a state before their block, as `_with_a_decay_too_little` has them."""
    wrong = [execution for execution in _calls_of(case, profile) if execution.deviates]
    differences = [outcome_difference(one.expected, one.actual, places=one.device != "cpu") for one in wrong]
    # What a property states of several calls, as that they leave the same bytes, holds with the defect, too.
    observed = {difference.seen for difference in differences if difference is not None}
    if case.failure is None or case.failure.observed not in observed:
        return False
    return all(
        execution.call.function == "Recurrences.linear_chunk"
        and execution.call.named["g"] is not None
        and execution.is_as(_with_a_decay_too_little(execution))
        for execution in wrong
    )


def _with_a_decay_too_little(execution: ExecutedCall) -> Returned:
    """What the defect makes of a call: the part of an output that a state before its block has in it decays by a token too little."""
    call, memory, profile = execution.call, execution.memory, execution.profile
    starts, slots = call.named["query_start_loc"].values(), call.named["slots"].values()
    gates = FloatMemory(dict(memory)).nested(call.named["g"])
    right = answer(call, memory, profile)
    assert isinstance(right, Returned)
    assert isinstance(right.value, Bounded)
    near = list(right.value.near)
    for first, end, slot in zip(starts, starts[1:], slots, strict=False):
        for start in range(first, end, _LIGHTNING_BLOCK):
            # The block as the only row, without a state.
            block: dict[str, Tensor] = {
                "query_start_loc": Tensor("int32", (2,), (start, min(end, start + _LIGHTNING_BLOCK))),
                "slots": Tensor("int32", (1,), (slot,)),
                "has_state": Tensor("bool", (1,), (0,)),
            }
            alone = call
            for name, tensor in block.items():
                alone = _with_argument(alone, name, tensor)
            own = answer(alone, memory, profile)
            assert isinstance(own, Returned)
            assert isinstance(own.value, Bounded)
            for place, (at, part, part_bound) in enumerate(own.value.near):
                token, head, *_ = own.value.index(at)
                _, value, bound = near[place]
                if isfinite(part_bound) and (value, bound) != (part, part_bound):
                    less = exp(-gates[token][head])
                    wrong = part + less * (value - part)
                    # The bound of the state's part alone grows with the part.
                    behind = max(bound - part_bound, 0.0) + _FLOAT32 * abs(value - part)
                    near[place] = at, wrong, part_bound + less * behind
    return replace(right, value=replace(right.value, near=tuple(near)))


FUNCTIONS: Mapping[str, Condition] = {
    "lightning_behind_a_state": Condition(outcome=_lightning_behind_a_state),
    "uniform_padding": Condition(_some_call(lambda call, _: _is_padded(call)), _padding_is_prefill),
    "drafted_nothing": Condition(_some_call(lambda call, _: _drops(call)), _explained_by_gdn(_drops)),
    "first_token": Condition(
        _some_call(lambda call, _: _has_first_token(call)), _explained_by_gdn(_has_first_token)
    ),
    "kept_table": Condition(_some_call(_table_is_wider)),
    "stale": Condition(outcome=_repeats_an_earlier_result),
    "unequal_ranks": Condition(inputs=_unequal_ranks),
    "one_group_for_unequal_ranks": Condition(inputs=_one_group_for_unequal_ranks),
}
