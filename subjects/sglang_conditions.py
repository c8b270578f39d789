"""Conditions that entries of `sglang_known.toml` name. No condition needs SGLang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise, zip_longest
from typing import Any

import numpy as np

from statecheck.case import Case
from statecheck.case.values import Let, Raised, Record, Returned
from statecheck.kernels.source.tiles import scan
from statecheck.subject.known import Condition
from statecheck.subject.profile import Profile

_USUAL = 4
"""Tokens between two boundaries, and of a chunk, of settings that do not say it."""


@dataclass(frozen=True)
class _WrongPrefix:
    """A prefix that can be hit with a wrong state: how many tokens it has, the states that its slot holds, and what was scheduled in each step."""

    tokens: int
    request: str
    found: tuple[Any, ...]
    steps: tuple[Mapping[str, Any], ...]
    prompts: Mapping[str, tuple[int, ...]]
    interval: int

    @property
    def owner(self) -> str:
        """The request whose states they all are; "" where it is none, or several."""
        owners = {name if not more else "" for name, _, more in self.found}
        return owners.pop() if len(owners) == 1 else ""

    @property
    def next_boundary(self) -> int:
        return (self.tokens // self.interval + 1) * self.interval

    @property
    def is_next_boundary(self) -> bool:
        """Of a convolution, the last of its rows is the state's. The state is of a request whose prompt begins like the prefix."""
        latest = max(count for _, count, _ in self.found)
        return self.owner in self.names and latest == self.next_boundary and self.begins_alike(self.owner)

    def begins_alike(self, name: str) -> bool:
        """Whether the prompts of a request and of the one that the prefix is named by are the same, as far as both go in the prefix."""
        own, other = (self.prompts.get(request, ())[: self.tokens] for request in (self.request, name))
        return all(token == other_token for token, other_token in zip(own, other, strict=False))

    @property
    def names(self) -> set[str]:
        return {name for step in self.steps for name in step}

    def rows(self, name: str) -> list[Mapping[str, Any]]:
        """Rows of a request, in all steps."""
        absent = {"tokens": 0, "computed": -1, "begins": False}
        return [step.get(name, absent) for step in self.steps]

    def passed(self, name: str) -> bool:
        """Whether a decode passed the boundary in a step right behind, or before, one with a prefill or without a decode of the request."""
        steps = list(zip(self.rows(name), self.steps, strict=True))
        pairs = [pair for two in pairwise(steps) for pair in (two, two[::-1])]
        return any(
            row["tokens"] == 1
            and row["computed"] == self.tokens - 1
            and not all(self.is_decode(*neighbour) for neighbour in ((name, beside), *others.items()))
            for (beside, others), (row, _) in pairs
        )

    def is_decode(self, name: str, row: Mapping[str, Any]) -> bool:
        """Whether the row of a request is one token behind its prompt, whose last chunk may be one token, too."""
        is_behind = row["computed"] >= len(self.prompts.get(name, ()))
        return bool(row["tokens"] == 1 and is_behind and not row["begins"])


def _wrong(case: Case, strategy: str) -> _WrongPrefix | None:
    """The first wrong prefix that an engine with this strategy and overlapping steps published; None where it did not, or is another one."""
    settings = dict(case.calls[0].named["settings"].fields)
    if settings.get("strategy") != strategy or not settings.get("overlap"):
        return None
    steps = _steps(case)
    about = _about(steps, "published") if isinstance(case.actual[-1], Returned) else {}
    scheduled = tuple(dict(step["scheduled"]) for step in steps)
    if not about.get("found"):
        return None
    interval = settings.get("mamba_track_interval", _USUAL)
    named = about["tokens"], about["request"], about["found"]
    return _WrongPrefix(*named, scheduled, _prompts(case), interval)


def _kept_in_the_same_slot(case: Case, _: Profile) -> bool:
    """A slot that may be hit as tokens up to a boundary holds a request's state at the next one, and a prefill ran beside its decode that passed it."""
    wrong = _wrong(case, "extra_buffer")
    return wrong is not None and wrong.is_next_boundary and wrong.passed(wrong.owner)


def _passed_in_flight(case: Case, _: Profile) -> bool:
    """With one slot, what may be hit up to a boundary holds a request's state at the next one, which its last decode passed, with or without drafts."""
    wrong = _wrong(case, "extra_buffer_lazy")
    if wrong is None or not wrong.is_next_boundary:
        return False
    last = next(row for row in reversed(wrong.rows(wrong.owner)) if row["tokens"])
    return bool(last["computed"] < wrong.next_boundary <= last["computed"] + last["tokens"])


def _has_mixed_batch(steps: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a prefill that is longer than a token ran in one batch with a decode."""
    batches = [list(step.values()) for step in steps]
    return any(
        any(row["tokens"] == 1 and not row["begins"] for row in rows)
        and any(row["tokens"] > 1 or row["begins"] for row in rows)
        for rows in batches
    )


def _mixed_batch(case: Case, profile: Profile) -> bool:
    """A batch was mixed, and what may be hit holds another state, which no copy at the next boundary explains: nothing was copied to its slot."""
    wrong = _wrong(case, "extra_buffer")
    if wrong is None or not dict(case.calls[0].named["settings"].fields).get("mixed"):
        return False
    return _has_mixed_batch(wrong.steps) and not _kept_in_the_same_slot(case, profile)


def _hit_of_a_mixed_batch(case: Case, _: Profile) -> bool:
    """A batch was mixed, and a request that begins behind a hit reads another state: its prefix was cached and hit in one turn."""
    settings = dict(case.calls[0].named["settings"].fields)
    steps = _steps(case)
    if settings.get("strategy") != "extra_buffer" or not settings.get("mixed") or not steps:
        return False
    about = _about(steps, "read")
    row = dict(steps[-1]["scheduled"]).get(about.get("request"), {})
    return bool(row and row["begins"] and row["computed"]) and _has_mixed_batch(
        dict(step["scheduled"]) for step in steps
    )


def _copied_before_it_came(case: Case, _: Profile) -> bool:
    """With host memory from which copies come late, a request begins behind a hit and reads another state than that of its tokens, and another request of
    the same prefix began no earlier than the copies are late.
    """
    settings, steps = dict(case.calls[0].named["settings"].fields), _steps(case)
    lates = [given["from_host"] for name, given in _calls(case).all if name == "delay_copies"]
    about = _about(steps, "read")
    name = about.get("request", "")
    row = dict(steps[-1]["scheduled"]).get(name, {}) if steps else {}
    if not settings.get("host_policy") or not max(lates, default=0) or not (row and row["begins"]):
        return False
    prompts, computed = _prompts(case), row["computed"]
    began = {
        other
        for step in steps[-1 - max(lates) :]
        for other, other_row in dict(step["scheduled"]).items()
        if other_row["begins"]
    }
    return computed > 0 and any(
        prompts.get(other, ())[:computed] == prompts.get(name, (0,))[:computed] for other in began - {name}
    )


def _no_slot_while_copies_run(case: Case, _: Profile) -> bool:
    """With prefixes that are copied to host memory when they are cached, an allocation of a slot of states fails while a copy of a prefix may still run."""
    settings, last = dict(case.calls[0].named["settings"].fields), case.actual[-1]
    late, turn, copied = 0, 0, 0
    for made, outcome in zip(case.calls, case.actual, strict=True):
        step = outcome.value if isinstance(outcome, Returned) else None
        if made.function.endswith("delay_copies"):
            late = made.named["to_host"]
        elif made.function.endswith("step"):
            turn += 1
            if late and isinstance(step, Record) and step["scheduled"]:
                copied = turn + late
    copies = str(settings.get("host_policy", "")).startswith("write_through")
    messages = "Can not alloc mamba cache", "Cannot alloc mamba for load_back", "Not enough space for mamba"
    fails = isinstance(last, Raised) and any(message in last.message for message in messages)
    return copies and fails and copied >= turn


def _prompts(case: Case) -> Mapping[str, tuple[int, ...]]:
    """Prompts of requests, by name."""
    return {given["id"]: given["prompt"] for name, given in _calls(case).all if name == "add_request"}


def _rows_off_the_grid(case: Case) -> set[str]:
    """With Mamba-2 layers that keep states at boundaries: requests that had a row of a prefill behind one that is no multiple of a chunk."""
    settings = dict(case.calls[0].named["settings"].fields)
    if settings.get("kind") != "mamba2" or settings.get("strategy") != "extra_buffer":
        return set()
    found = set()
    for step in _steps(case):
        rows = dict(step["scheduled"])
        if all(row["tokens"] == 1 and not row["begins"] for row in rows.values()):
            continue
        chunk = settings.get("mamba_chunk_size", _USUAL)
        parts = accumulate((row["tokens"] % chunk for row in rows.values()), initial=0)
        found |= {name for name, behind_a_part in zip(rows, parts, strict=False) if behind_a_part}
    return found


def _off_the_grid(case: Case, profile: Profile) -> bool:
    """A row began behind one that is no multiple of a chunk, and what may be hit holds another temporal state, which no copy at the next boundary explains."""
    wrong = _wrong(case, "extra_buffer")
    return wrong is not None and bool(_rows_off_the_grid(case)) and not _kept_in_the_same_slot(case, profile)


def _hit_off_the_grid(case: Case, _: Profile) -> bool:
    """A row began behind one that is no multiple of a chunk, and a request that begins behind a hit reads another state: its prefix was cached and hit in one turn."""
    steps = _steps(case)
    about = _about(steps, "read")
    row = dict(steps[-1]["scheduled"]).get(about.get("request"), {}) if steps else {}
    return bool(row and row["begins"] and row["computed"] and _rows_off_the_grid(case))


def _steps(case: Case) -> list[Record]:
    """The steps that returned."""
    ended = [outcome.value for outcome in case.actual if isinstance(outcome, Returned)]
    return [value for value in ended if isinstance(value, Record) and value.type == "RadixStep"]


def _about(steps: Sequence[Record], *laws: str) -> Mapping[str, Any]:
    """The last step's finding that breaks one of these laws, as data; nothing where a state of another layer or kind was found, which no
    defect of these explains.
    """
    findings = steps[-1]["findings"] if steps else ()
    about = next((dict(about) for law, *_, about in findings if law in laws), {})
    return {} if any(owner == "@" for owner, *_ in about.get("found", ())) else about


@dataclass(frozen=True)
class _Calls:
    """The calls of a case, by the method's name and the arguments."""

    all: tuple[tuple[str, Mapping[str, Any]], ...]

    def turns(self, session: str) -> list[Mapping[str, Any]]:
        """Turns of a session, in their order."""
        return [given for name, given in self.all if name == "add_turn" and given["session"] == session]

    @property
    def streaming(self) -> set[str]:
        """Sessions of this kind."""
        return {given["id"] for name, given in self.all if name == "open_session" and given["streaming"]}

    @property
    def arrived(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Calls right before the last step."""
        last = max((at for at, (name, _) in enumerate(self.all[:-1]) if name == "step"), default=0)
        return list(self.all[last:-1])


def _calls(case: Case) -> _Calls:
    return _Calls(tuple((call.function.rpartition(".")[2], dict(call.named)) for call in case.calls))


def _replaces_all(case: Case, _: Profile) -> bool:
    """A turn that came in right before the last step takes the place of all of its session, which has had a turn before."""
    calls = _calls(case)
    replacing = [turn for name, turn in calls.arrived if name == "add_turn" and turn["replaces"]]
    return any(not turn["after"] and calls.turns(turn["session"])[0] is not turn for turn in replacing)


@dataclass(frozen=True)
class _BesideARunningTurn:
    """Requests to a streaming session while a turn of it had not ended.

    Turns, whether one of them came behind a pause that had sent the running one back to the queue, and whether the session was closed behind one.
    """

    turns: int = 0
    retracted: bool = False
    behind_a_pause: bool = False
    closed: bool = False


def _beside_running_turns(case: Case) -> list[_BesideARunningTurn]:
    """Of each turn of a streaming session that had another one beside it."""
    found = []
    for session in _calls(case).streaming:
        running, beside = "", _BesideARunningTurn()
        for called, outcome in zip_longest(_calls(case).all, case.actual):
            name, given = called or ("", {})
            if name == "add_turn" and given["session"] == session:
                if running:
                    behind_a_pause = beside.behind_a_pause or beside.retracted
                    beside = replace(beside, turns=beside.turns + 1, behind_a_pause=behind_a_pause)
                running = running or given["id"]
            elif name == "pause" and given["retract"] and running:
                beside = replace(beside, retracted=True)
            elif name == "close_session" and given["id"] == session and running and beside.turns:
                beside = replace(beside, closed=True)
            value = outcome.value if isinstance(outcome, Returned) else None
            if isinstance(value, Record) and value.type == "RadixStep" and running in value["finished"]:
                found.append(beside)
                running, beside = "", _BesideARunningTurn()
        found.append(beside)
    return [turn for turn in found if turn.turns]


def _refused_before_a_record(case: Case, _: Profile) -> bool:
    """A turn beside another one of a streaming session wanted the session's record, which the other one has."""
    last = case.actual[-1]
    taken = isinstance(last, Raised) and "already has a slot" in last.message
    return taken and bool(_beside_running_turns(case))


def _taken_beside_a_running_turn(case: Case, _: Profile) -> bool:
    """Two turns or more came to a streaming session while one of it had not ended: the second is taken."""
    return any(beside.turns > 1 for beside in _beside_running_turns(case))


def _closed_beside_a_running_turn(case: Case, _: Profile) -> bool:
    """A streaming session was closed behind a refused turn, while another one of it had not ended."""
    return any(beside.closed for beside in _beside_running_turns(case))


def _slots_of_a_closed_session(case: Case, profile: Profile) -> bool:
    """As above, and the turn was to give away a slot that it has lost."""
    at = case.actual[-1].at if isinstance(case.actual[-1], Raised) else None
    gives_away = at is not None and at.function == "donate_mamba_ping_pong_slot"
    return gives_away and _closed_beside_a_running_turn(case, profile)


def _retracted_and_aborted(case: Case, _: Profile) -> bool:
    """A request was aborted behind a pause that sent requests back to the queue, and a streaming session was closed, before that or behind it."""
    calls = _calls(case)
    names = [name if name != "pause" or given["retract"] else "" for name, given in calls.all]
    closed = any(name == "close_session" and given["id"] in calls.streaming for name, given in calls.all)
    return closed and "pause" in names and "abort" in names[names.index("pause") :]


def _retracted_and_aborted_with_few_rows(case: Case, profile: Profile) -> bool:
    """As above, and the engine has no more rows than streaming sessions that had a turn: what is not given back leaves none."""
    rows = dict(case.calls[0].named["settings"].fields).get("max_running_requests", 0)
    calls = _calls(case)
    return 0 < rows <= sum(
        bool(calls.turns(session)) for session in calls.streaming
    ) and _retracted_and_aborted(case, profile)


def _retracted_aborted_and_continued(case: Case, _: Profile) -> bool:
    """A turn of a streaming session that had not ended was aborted and sent back to the queue by a pause, in either order, and the session has another
    turn behind that.
    """
    for session in _calls(case).streaming:
        lost: dict[str, set[str]] = {}
        """By turn that has not ended, what happened to it."""
        for called, outcome in zip_longest(_calls(case).all, case.actual):
            name, given = called or ("", {})
            if name == "add_turn" and given["session"] == session:
                if {"pause", "abort"} in lost.values():
                    return True
                lost[given["id"]] = set()
            elif name == "abort" and given["id"] in lost:
                lost[given["id"]].add(name)
            elif name == "pause" and given["retract"]:
                for happened in lost.values():
                    happened.add(name)
            value = outcome.value if isinstance(outcome, Returned) else None
            if isinstance(value, Record) and value.type == "RadixStep":
                kept = {"pause", "abort"}
                lost = {
                    turn: events
                    for turn, events in lost.items()
                    if events == kept or turn not in value["finished"]
                }
    return False


def _waits_for_a_free_row(case: Case, _: Profile) -> bool:
    """As many streaming sessions as the engine has rows keep one, and a turn of one of them has not ended."""
    calls, steps = _calls(case), _steps(case)
    scheduled = {name for step in steps for name in step["scheduled"]}
    ended = {name for step in steps for name in step["finished"]}
    aborted = {name for step in steps for name in step["aborted"]}
    closed = {given["id"] for name, given in calls.all if name == "close_session"}
    keeping, waiting = 0, False
    for session in calls.streaming:
        # What a refused turn computes is a token 0.
        turns = [turn["id"] for turn in calls.turns(session) if tuple(turn["prompt"]) != (0,)]
        ran = [name for name in turns if name in scheduled]
        waits = any(name not in ended for name in turns)
        if ran and ran[-1] not in aborted and (waits or session not in closed):
            keeping += 1
            waiting = waiting or waits
    rows = dict(case.calls[0].named["settings"].fields).get("max_running_requests", 0)
    return waiting and 0 < rows <= keeping


def _taken_behind_a_retracted_turn(case: Case, _: Profile) -> bool:
    """A turn came to a streaming session while one of it had not ended, which a pause had sent back to the queue."""
    return any(beside.behind_a_pause for beside in _beside_running_turns(case))


def _last_token_of_a_turn(case: Case, _: Profile) -> bool:
    """With drafts, a turn of a streaming session goes on at the end of what the turn before said."""
    if not dict(case.calls[0].named["settings"].fields).get("num_draft_tokens"):
        return False
    calls = _calls(case)
    steps = _steps(case)
    about = _about(steps, "attention", "read")
    row = dict(steps[-1]["scheduled"]).get(about.get("request"), {})
    turns = [turn for name in calls.streaming for turn in calls.turns(name)[1:]]
    return any(
        turn["id"] == about.get("request") and row["computed"] == len(turn["prompt"]) - len(turn["sent"])
        for turn in turns
    )


def _aborted_past_its_end(case: Case, _: Profile) -> bool:
    """With drafts, a request that was aborted says tokens behind its end in its last step, fewer than that step's accepted drafts."""
    steps = _steps(case)
    drafts = dict(case.calls[0].named["settings"].fields).get("num_draft_tokens", 0) - 1
    if not steps or drafts < 1:
        return False
    last = steps[-1]
    for law, *_, fields in last["findings"]:
        about = dict(fields)
        if law == "output" and about.get("ended") is False and about["request"] in last["aborted"]:
            said = len(dict(last["outputs"]).get(about["request"], ()))
            return 0 < about["said"] - about["end"] < said <= 1 + drafts
    return False


_WITHOUT_PARTS = frozenset({"gigachat35", "mamba2", "nemotron_h", "falcon_h1", "granitemoehybrid", "zaya"})
"""Models whose configuration does not say which parts a convolution has."""


def _sent_in_one_slice(case: Case, _: Profile) -> bool:
    """The parts of the model's convolution are not known, and the engines have unequal numbers of ranks."""
    sent = case.calls[-1].named
    return sent["model"] in _WITHOUT_PARTS and sent["source_tp"] != sent["target_tp"]


def _one_group_in_slices(case: Case, profile: Profile) -> bool:
    """Each rank has the one group of the model, so that slices of all ranks are larger together than the state."""
    groups = dict(case.calls[-1].named["sizes"]).get("n_groups")
    return groups == 1 and _sent_in_one_slice(case, profile)


def _whole_state_in_slices(case: Case, profile: Profile) -> bool:
    return case.calls[-1].named["model"] == "zaya" and _sent_in_one_slice(case, profile)


_CONV_CHUNK = 8
"""Tokens of a chunk in the kernel of the convolution of prompts."""


def _one_chunk_of_a_convolution(case: Case, _: Profile) -> bool:
    """All tokens of the batch are in one chunk of one row: the last token alone lies behind 2^31 elements, and its number in the chunk is its number in the batch."""
    batch = case.calls[-1].named
    tokens = batch["x"].shape[0]
    rows = [end - begin for begin, end in pairwise(batch["query_start_loc"].values())]
    return max(rows) == tokens <= _CONV_CHUNK


def _last_token_of_one_chunk(case: Case, _: Profile) -> bool:
    """The last token, which alone lies behind 2^31 elements, is reached by one product in 32 bits.

    Its number inside of its chunk is its number in the batch, or its chunk begins with it.
    """
    batch = case.calls[-1].named
    last, chunk = batch["x"].shape[0] - 1, batch["chunk_size"]
    return last < chunk or last % chunk == 0


def _offset_behind_32_bits(case: Case, _: Profile) -> bool:
    """The number of a slot, or that of a token, times its stride needs more than 31 bits."""
    batch = case.calls[-1].named
    slots, tokens = max(batch["slots"].values()), batch["v"].shape[0] - 1
    return max(slots * batch["states"].strides[0], tokens * batch["v"].strides[0]) >= 2**31


def _gated_convolution(case: Case, _: Profile) -> bool:
    """A convolution that the kernels of LFM2 compute."""
    batch = case.calls[-1].named
    plain = batch["bias"] is None and batch["activation"] is None
    return plain and batch["x"].dtype == "bfloat16" and batch["weight"].shape[1] == 3


def _gated_convolution_behind_32_bits(case: Case, profile: Profile) -> bool:
    """A convolution of LFM2: the number of a slot, or that of a token, times its stride needs more than 31 bits. Drafts have another kernel."""
    batch = case.calls[-1].named
    slots, tokens = max(batch["slots"].values()), batch["x"].shape[0] - 1
    largest = max(slots * batch["states"].strides[0], tokens * batch["x"].strides[0])
    return _gated_convolution(case, profile) and batch.get("num_accepted") is None and largest >= 2**31


def _window_of_a_gated_convolution(case: Case, profile: Profile) -> bool:
    """A convolution of LFM2 with a row of tokens that has a state: such a row alone reads the window of its slot."""
    batch = case.calls[-1].named
    lengths = [end - begin for begin, end in pairwise(batch["query_start_loc"].values())]
    rows = zip(lengths, batch["has_state"].values(), batch["slots"].values(), strict=True)
    return _gated_convolution(case, profile) and any(
        length > 0 and has_state and slot >= 0 for length, has_state, slot in rows
    )


_GATES_CHUNK = 64
"""Tokens of a chunk of the gated delta rule."""


def _sum_of_gates_rises(case: Case, _: Profile) -> bool:
    """The sum of a head's gates over a chunk of a row, in float32, rises from a token to the next, as a CPU adds them."""
    memory = {step.name: step.value for step in case.steps if isinstance(step, Let)}
    for batch in (call.named for call in case.calls if call.function == "Recurrences.gdn_chunk"):
        view = batch["g"]
        numbers = np.frombuffer(memory[view.of].elements, np.float32)
        token, head = view.strides
        for begin, end in pairwise(batch["query_start_loc"].values()):
            for first in range(begin, end, _GATES_CHUNK):
                tokens = np.arange(first, min(first + _GATES_CHUNK, end))
                gates = numbers[token * tokens[:, None] + head * np.arange(view.shape[1])]
                sums = scan(lambda before, more: (before + more,), (gates,), 0, backwards=False)
                if (np.diff(sums, axis=0) > 0).any():
                    return True
    return False


CONDITIONS: Mapping[str, Condition] = {
    "sum_of_gates_rises": Condition(inputs=_sum_of_gates_rises),
    "mixed_batch": Condition(outcome=_mixed_batch),
    "hit_of_a_mixed_batch": Condition(outcome=_hit_of_a_mixed_batch),
    "replaces_all": Condition(outcome=_replaces_all),
    "refused_before_a_record": Condition(outcome=_refused_before_a_record),
    "taken_beside_a_running_turn": Condition(outcome=_taken_beside_a_running_turn),
    "closed_beside_a_running_turn": Condition(outcome=_closed_beside_a_running_turn),
    "slots_of_a_closed_session": Condition(outcome=_slots_of_a_closed_session),
    "retracted_and_aborted": Condition(outcome=_retracted_and_aborted),
    "retracted_and_aborted_with_few_rows": Condition(outcome=_retracted_and_aborted_with_few_rows),
    "retracted_aborted_and_continued": Condition(outcome=_retracted_aborted_and_continued),
    "taken_behind_a_retracted_turn": Condition(outcome=_taken_behind_a_retracted_turn),
    "waits_for_a_free_row": Condition(outcome=_waits_for_a_free_row),
    "off_the_grid": Condition(outcome=_off_the_grid),
    "copied_before_it_came": Condition(outcome=_copied_before_it_came),
    "no_slot_while_copies_run": Condition(outcome=_no_slot_while_copies_run),
    "hit_off_the_grid": Condition(outcome=_hit_off_the_grid),
    "last_token_of_a_turn": Condition(outcome=_last_token_of_a_turn),
    "kept_in_the_same_slot": Condition(outcome=_kept_in_the_same_slot),
    "passed_in_flight": Condition(outcome=_passed_in_flight),
    "aborted_past_its_end": Condition(outcome=_aborted_past_its_end),
    "sent_in_one_slice": Condition(inputs=_sent_in_one_slice),
    "one_group_in_slices": Condition(inputs=_one_group_in_slices),
    "whole_state_in_slices": Condition(inputs=_whole_state_in_slices),
    "one_chunk_of_a_convolution": Condition(inputs=_one_chunk_of_a_convolution),
    "offset_behind_32_bits": Condition(inputs=_offset_behind_32_bits),
    "window_of_a_gated_convolution": Condition(inputs=_window_of_a_gated_convolution),
    "gated_convolution_behind_32_bits": Condition(inputs=_gated_convolution_behind_32_bits),
    "last_token_of_one_chunk": Condition(inputs=_last_token_of_one_chunk),
}
