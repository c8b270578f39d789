"""Conditions about scenarios of a whole engine: its settings, what a connector loaded, and the wrong state that a broken step shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from statecheck.case.values import Call, Raised, Record, Returned
from statecheck.subject.known import Condition
from subjects.vllm_conditions.scenarios import NO_ROW, RecordedScenario, Row, of_scenario

_LATEST = 4
"""Steps within which rows that moved may read by their old places."""
_SHAPES = re.compile(r"receives \((\d+), (\d+)\) of a broadcast of \((\d+), (\d+)\)")
"""What a stage asks for, and what is sent: rows and columns."""
_RESTS = ("LiveEngine.update_weights", "LiveEngine.sleep")
_LAST = 10
"""How many steps at the end of a scenario are looked at."""
_TURNS = 60
"""The same where requests run one after the other: each up to 16 steps, of a prompt of 64 tokens in chunks of four."""


# The engine.


def _smaller_attention_blocks(s: RecordedScenario) -> bool:
    return s.attention_block_size < s.block_size


def _hits_inside_blocks(s: RecordedScenario) -> bool:
    return s.settings["prefix_match_unit"] > 0 or _smaller_attention_blocks(s)


def _saves_inside_blocks(s: RecordedScenario) -> bool:
    return bool(s.settings["checkpoints"]) and _hits_inside_blocks(s)


def _moves_counts(s: RecordedScenario) -> bool:
    overlaps = s.speculates and s.settings["async_scheduling"]
    return bool(overlaps and s.settings["runner"] == "V1" and s.settings["prefix_caching"])


def _keeps_every_boundary(s: RecordedScenario) -> bool:
    return s.speculates and s.settings["mamba_cache_mode"] == "all"


# What it shows.


def _took_in_placeholders(s: RecordedScenario) -> bool:
    return any(more and not any(more) for _, _, more in s.wrong["found"])


def _short_rests(s: RecordedScenario, name: str) -> Iterator[tuple[int, int]]:
    """Tokens before and after each row in which a request that was preempted computes again what it had said, in a
    row no longer than a decode with drafts.
    """
    longest, prompt, begun = 1 + s.settings["num_spec"], s.prompt(name), 0
    for row in (row for request, row in s.rows if request == name):
        begun += bool(row["begins"])
        if begun > 1 and not row["drafts"] and row["computed"] >= prompt and 1 < row["tokens"] <= longest:
            yield row["computed"], row["computed"] + row["tokens"]


def _resumed_with_a_short_rest(s: RecordedScenario) -> bool:
    """Whether such a row is of the request, or, since a block is named after its first owner, ended where the state should be."""
    if s.found_own and any(_short_rests(s, s.request)):
        return True
    rests = (rest for name in {name for name, _ in s.rows} for rest in _short_rests(s, name))
    return s.law == "published" and any(first < s.wrong["tokens"] <= last for first, last in rests)


def _rows_moved(s: RecordedScenario) -> bool:
    """Whether other requests than before were in one of the latest steps, so that rows could move."""
    return len({tuple(step) for step in s.steps[-_LATEST:]}) > 1


def _replays_graphs(s: RecordedScenario) -> bool:
    """Whether the adapter holds a step against the graph that the V1 model runner replays."""
    plain = s.settings["layers"] > 1 and not s.settings["prefix_caching"]
    return bool(plain and s.settings["padding"] > 0 and s.settings["runner"] == "V1")


def _passed_over_with_a_prefill(s: RecordedScenario) -> bool:
    """Whether layers pass a row of the step over, each row has as many tokens as a decode with its drafts, and one of them is of a prefill."""
    rows, decode = s.steps[-1], 1 + s.settings["num_spec"]
    prefills = (row["begins"] or row["computed"] < s.prompt(name) for name, row in rows.items())
    passed = s.request in rows and s.wrong["runs"] == 0
    return passed and all(row["tokens"] == decode for row in rows.values()) and any(prefills)


def _padded_prompt(s: RecordedScenario) -> bool:
    """Whether the request that read a wrong state had computed nothing, and was filled up with placeholders."""
    return bool(s.row["computed"] == 0 and s.row["drafts"] > 0)


def _crossed_there(s: RecordedScenario) -> bool:
    """Whether a step began inside of a recurrent block, passed its end, and that is where the wrong state should be."""
    size, there = s.block_size, s.wrong["tokens"]
    chunks = ((row["computed"], row["tokens"]) for _, row in s.rows)
    return any(
        first % size and first // size * size + size == there < first + tokens for first, tokens in chunks
    )


def _hit_inside_beside_others(s: RecordedScenario) -> bool:
    """Whether the request that reads a wrong key has just begun beside others, by a hit that ends inside of a block, and the key is of that block."""
    computed, size = s.row["computed"], s.attention_block_size
    first = (computed - 1) // size * size
    of_last_block = bool(s.row["begins"]) and 0 <= first <= s.wrong["tokens"] - 1
    return of_last_block and computed % size > 0 and len(s.steps[-1]) > 1


def _column_of_a_hit(s: RecordedScenario) -> bool:
    """Whether the request has just begun, and its hit ends in another column where blocks are as small as attention's."""
    last = s.row["computed"] - 1
    return bool(s.row["begins"]) and last >= 0 and last // s.attention_block_size != last // s.block_size


def _plain_decode(s: RecordedScenario) -> bool:
    """Whether the request that reads a wrong state decodes one token, without drafts."""
    return bool(s.row["computed"] >= s.prompt(s.request) and s.row["tokens"] == 1 and not s.row["drafts"])


def _chunk_before_the_last(s: RecordedScenario) -> bool:
    """Whether a chunk of two blocks, neither the first nor the last of its request, ends where the wrong conv rows should be."""
    chunks = (
        (row["computed"], row["computed"] + row["tokens"])
        for name, row in s.rows
        if not row["begins"] and row["computed"] + row["tokens"] < s.prompt(name)
    )
    return bool(s.wrong["conv"]) and any(
        last == s.wrong["tokens"] and -(-last // s.block_size) + -first // s.block_size == 2
        for first, last in chunks
    )


def _drafts_passed_there(s: RecordedScenario) -> bool:
    """Whether a row with drafts passed the block's end that the wrong block may be hit as."""
    there = s.wrong["tokens"]
    rows = [row for _, row in s.rows if row["drafts"]]
    passed = any(row["computed"] < there <= row["computed"] + row["tokens"] for row in rows)
    return bool(there % s.block_size == 0 and passed)


def _was_in_a_later_column(s: RecordedScenario) -> bool:
    """Whether the request that reads wrong conv rows ran a row with drafts whose last one was in a later block than its state is."""
    rows = [step[s.request] for step in s.steps[:-1] if s.request in step]
    last = (s.wrong["tokens"] - 1) // s.block_size
    ends = ((row["computed"] + row["tokens"] - 1) // s.block_size for row in rows if row["drafts"])
    return bool(s.wrong["conv"] and any(end > last for end in ends))


def _lacks_the_column_before(s: RecordedScenario) -> bool:
    ended = s.case.actual[-1] if s.case.actual else None
    return isinstance(ended, Raised) and "block_idx_last_scheduled_token_prev_step" in ended.message


def _begins_for_ever(s: RecordedScenario) -> bool:
    """Whether in the end every row is of a request that begins anew, and other steps have none."""
    last = s.steps[-_LAST:]
    begins = [row["begins"] for step in last for row in step.values()]
    return len(begins) >= _LAST // 2 and all(begins) and any(not step for step in last)


def _preempt_themselves_in_turn(s: RecordedScenario) -> bool:
    """Whether in the end several requests run one after the other without an output, each alone, until it is preempted itself, and one does so again."""
    gave_up = list[str]()
    last, ran = s.returned[-_TURNS:], ""
    for step in itertools.dropwhile(lambda step: not step["scheduled"], last):
        rows, preempted = dict(step["scheduled"]), step["preempted"]
        if step["outputs"] or len(rows) + len(preempted) > 1 or not {*preempted} <= {ran}:
            return False
        gave_up += preempted
        ran = next(iter(rows), ran)
    return len(gave_up) > len({*gave_up}) > 1


def _blocks_of_a_hit_inside(s: RecordedScenario, tokens: int) -> int:
    """Blocks that the release counts before it admits so many tokens with a hit that ends inside of a block.

    In attention one more than the tokens take; in each recurrent group the block that is hit, its copy, and the one that is run in.
    """
    states = 3 + s.settings["num_spec"] + bool(s.settings["checkpoints"])
    return int(-(-tokens // s.attention_block_size) + 1 + len(s.settings["kinds"]) * states)


def _waits_for_more_blocks_than_there_are(s: RecordedScenario) -> bool:
    """Whether nothing runs, all blocks are free, and a request that waits wants more of them, and begins like an earlier one or has run itself."""
    last, waiting = (s.returned[-1], s.waiting) if s.returned else (None, [])
    if last is None or not waiting or dict(last["scheduled"]) or last["owners"]:
        return False
    known = s.tokens
    return any(
        _blocks_of_a_hit_inside(s, len(known[name])) > last["free"]
        and (
            any(known[name][:1] == tokens[:1] for other, tokens in known.items() if other != name)
            or any(name in step for step in s.steps)
        )
        for name in waiting
    )


def _waits_between_items(s: RecordedScenario) -> bool:
    """Whether nothing runs, and a request has computed its tokens up to the end of an item, with one more before the next, for which the encoder's cache has no room beside it."""
    if not s.returned or s.returned[-1]["scheduled"]:
        return False
    room = max(s.settings["max_num_batched_tokens"], *(length for _, length in s.settings["items"]))
    last = {name: row["computed"] + row["tokens"] for name, row in s.rows}
    return any(
        end == first + length == second - 1 and s.prompt(name) > second and length + following > room
        for (first, length), (second, following) in itertools.pairwise(s.settings["items"])
        for name, end in last.items()
    )


# Scenarios with a connector: what was loaded for which request, and what waits for it.


def _loads_at_once(s: RecordedScenario) -> bool:
    return s.settings["connector"] == "sync" and bool(s.settings["prefix_caching"])


def _has_no_blocks(s: RecordedScenario) -> bool:
    ended = s.case.actual[-1]
    return isinstance(ended, Raised) and ended.message.startswith("Cannot get ")


def _loaded_in_its_step(s: RecordedScenario) -> bool:
    """Whether the request that reads a wrong state has just begun, behind tokens that a connector loaded in the same step."""
    loaded = s.returned[-1]["loaded"] if s.returned else ()
    found = any(
        name == s.request and group and tokens == s.wrong["tokens"] for group, _, name, tokens in loaded
    )
    return bool(s.row["begins"]) and s.row["computed"] == s.wrong["tokens"] and found


def _stuck_after_a_failed_load(s: RecordedScenario) -> bool:
    """Whether nothing runs any more, and a request whose load failed still waits."""
    failed = {name for step in s.returned for name in step["unloaded"]}
    return bool(failed & {*s.waiting}) and not s.returned[-1]["scheduled"] and not s.returned[-1]["loaded"]


def _stuck_after_loads(s: RecordedScenario) -> bool:
    """Whether nothing runs any more, no load has failed, and requests have what was loaded for them."""
    steps = s.returned
    waiting = {name for name, *_ in steps[-1]["owners"]} if steps and not steps[-1]["scheduled"] else set()
    loaded = {name for step in steps for _, _, name, _ in step["loaded"]}
    return bool(waiting & loaded) and not any(step["unloaded"] for step in steps)


def _saves_for_ever(s: RecordedScenario) -> bool:
    """Whether all requests are gone, and host memory still got other blocks in the steps behind the last row."""
    quiet = itertools.takewhile(lambda step: not step["scheduled"], reversed(s.returned))
    return not s.waiting and len({tuple(step["saved"]) for step in quiet}) > 2


def _behind_rows(s: RecordedScenario) -> Iterator[tuple[Record | None, list[Call]]]:
    """Of each call the step that it returned, if it was one, and the calls since the last step with rows before, itself the last."""
    calls: list[Call] = []
    for call, outcome in zip(s.case.calls, s.case.actual, strict=True):
        calls.append(call)
        value = outcome.value if isinstance(outcome, Returned) else None
        step = value if isinstance(value, Record) and value.type == "LiveStep" else None
        yield step, calls
        if step is not None and step["scheduled"]:
            calls = []


def _resets(call: Call) -> bool:
    """Whether the engine empties its caches, and the connector's, for other weights or a sleep; for one of level 0 it does not."""
    return call.function in _RESTS and call.named.get("level") != 0


def _reset_again_before_a_step(s: RecordedScenario) -> bool:
    """Whether the cache of the connector is reset for the second time since the last step with rows."""
    *_, (_, calls) = _behind_rows(s)
    return sum(_resets(call) or bool(call.named.get("external")) for call in calls) > 1


def _reset_with_a_step_in_flight(s: RecordedScenario) -> bool:
    """Whether a reset that preempts finds blocks in use, behind a step with rows: its refusal, and no other error of the call."""
    ended = s.case.actual[-1]
    if not (isinstance(ended, Raised) and s.steps and s.steps[-1] and s.case.calls[-1].named["preempt"]):
        return False
    there = ended.at is None or ended.at.function == "reset_prefix_cache"
    return there and ended.message.startswith("Failed to reset KV cache")


def _has_rested(s: RecordedScenario) -> bool:
    """Whether the engine has paused: for a sleep, or for other weights."""
    return any(call.function in ("LiveEngine.sleep", "LiveEngine.update_weights") for call in s.case.calls)


def _sat_a_step_out(s: RecordedScenario) -> bool:
    """Whether the request ran with drafts, had no part in the step before its last one, and was not preempted for that."""
    name, steps = s.request, s.executed
    drafted = any(step[name]["drafts"] for step in steps[:-2] if name in step)
    return drafted and name in steps[-1] and name not in steps[-2] and not s.row["begins"]


def _goes_on_behind_a_pause(s: RecordedScenario) -> dict[str, Row]:
    """By request, its latest row behind a pause that emptied no cache and in which the scheduler took in that drafts of its row before were rejected."""
    rows: dict[str, Row] = {}
    found: dict[str, Row] = {}
    rejected: set[str] = set()
    paused = False
    for call, outcome in zip(s.case.calls, s.case.actual, strict=True):
        step = outcome.value if isinstance(outcome, Returned) and isinstance(outcome.value, Record) else None
        paused |= s.pauses(call)
        if step is not None and step.type == "LiveStep":
            now = {name: dict(row) for name, row in dict(step["scheduled"]).items()}
            if now:
                found |= {name: now[name] for name in rejected & now.keys() if not now[name]["begins"]}
                paused, rejected = False, set()
            elif paused:
                said = dict(step["outputs"])
                rejected |= {name for name in said if len(said[name]) <= rows.get(name, NO_ROW)["drafts"]}
            rows |= now
    return found


def _corrected_twice(s: RecordedScenario) -> bool:
    """Whether the wrong block ends in such a row or no more tokens before it than drafts, or the request reads a wrong state in such a row or in the next."""
    found = _goes_on_behind_a_pause(s)
    if s.law == "published":
        most = s.settings["num_spec"]
        rows = ((row["computed"] - most, row["computed"] + row["tokens"]) for row in found.values())
        return any(first < s.wrong["tokens"] <= last for first, last in rows)
    # Kernels tell a wrong output from that of a state, and not whose state it is.
    has_own = s.found_own_or_unknown if s.settings["kernels"] else s.found_own
    return has_own and found.get(s.request) in [row for name, row in s.rows if name == s.request][-2:]


def _sooner_than_its_token(s: RecordedScenario) -> bool:
    """Whether a decode runs wrong tokens fewer executed steps behind its row before than there are stages. A stage that is late
    runs a row in a later step, when the request may have another row.
    """
    steps = [number for number, step in enumerate(s.executed) if s.request in step]
    most_late = dict(enumerate(s.settings["late_stages"])).get(s.wrong.get("stage", 0), 0)

    def is_decode(number: int) -> bool:
        return bool(s.executed[number][s.request]["computed"] >= s.prompt(s.request) > 0)

    return s.law == "tokens" and any(
        is_decode(number)
        and len(s.executed) - 1 - number <= most_late
        and number - before < s.settings["stages"]
        for before, number in itertools.pairwise(steps)
    )


def _passed_before_it_is_taken_in(s: RecordedScenario) -> bool:
    """Whether a row with drafts came to the tokens of the wrong state, its result came before the stages could take it in, and the state is
    recurrent and not the last stage's. A request that reads the state has hit it.
    """
    there = s.wrong["tokens"]
    hits = (row for name, row in s.rows if name == s.request and row["begins"])
    if s.law == "read" and not any(row["computed"] == there for row in hits):
        return False
    is_of_last_stage = s.wrong.get("stage", 0) == s.settings["stages"] - 1
    if there % s.block_size or is_of_last_stage or not s.wrong.get("group", 1):
        return False
    for number, step in enumerate(s.steps):
        for name in (name for name, row in step.items() if row["drafts"]):
            behind, tokens = _result_behind(s, number, name)
            # With overlapping steps a row counts drafts of its request that are rejected once the step before has its result.
            drafted = [at for at in range(number) if s.steps[at].get(name, NO_ROW)["drafts"]]
            results = {at: _result_behind(s, at, name) for at in drafted}
            computed = step[name]["computed"] - sum(
                s.steps[at][name]["drafts"] + 1 - len(said)
                for at, (steps, said) in results.items()
                if said and at + steps >= number
            )
            is_early = sum(s.runs[number + 1 : number + behind + 1]) + 1 < s.settings["stages"]
            if is_early and computed < there <= computed + len(tokens):
                return True
    return False


def _result_behind(s: RecordedScenario, number: int, name: str) -> tuple[int, Sequence[int]]:
    """After how many steps a request's row of a step has its result, and the tokens; none where the scenario ends before."""
    said = (dict(later["outputs"]).get(name, ()) for later in s.returned[number + 1 :])
    return next(((at, tokens) for at, tokens in enumerate(said, 1) if tokens), (0, ()))


def _receives_another_width(s: RecordedScenario) -> bool:
    """Whether a stage asks for several tokens of each row where the last stage sends one."""
    ended = s.case.actual[-1] if s.case.actual else None
    found = _SHAPES.search(ended.message) if isinstance(ended, Raised) else None
    if found is None:
        return False
    rows, columns, sent_rows, sent_columns = map(int, found.groups())
    return rows == sent_rows and columns > sent_columns == 1


def _preempts(call: Call) -> bool:
    """Whether requests that run are preempted. A sleep that aborts leaves none."""
    return bool((_resets(call) and call.named.get("mode") != "abort") or call.named.get("preempt"))


def _forgets_what_a_reset_preempted(s: RecordedScenario) -> bool:
    """Whether the step behind a reset that preempts raises as the connector does, or a request that such a reset
    preempted has blocks, has not ended, and got no row in the step behind the reset or later. It may have been aborted: then it waits for its load, too.
    """
    ended, last = s.case.actual[-1], s.returned[-1] if s.returned else None
    forgotten, preempts = set[str](), False
    for step, calls in _behind_rows(s):
        preempts = any(map(_preempts, calls))
        if step is not None:
            forgotten |= set(step["preempted"] if preempts else ())
            forgotten -= set(dict(step["scheduled"]))
    if isinstance(ended, Raised):
        # The assertion of the second one has no text.
        says = {"V1": "'NoneType' object is not subscriptable", "V2": ""}[s.settings["runner"]]
        there = ended.at is None or ended.at.function == "build_connector_meta"
        return preempts and ended.message == says and there
    finished = {name for step in s.returned for name in step["finished"]}
    return last is not None and bool(forgotten & {name for name, *_ in last["owners"]} - finished)


def _saves_placeholders(s: RecordedScenario) -> bool:
    """Whether a block is saved as tokens that were placeholder drafts in a request's first step, or a save raises
    behind such a step, or in it, whose placeholders end a block.
    """
    size, most = s.block_size, s.settings["num_spec"]
    begun = [
        row["computed"] + 1 for _, row in s.rows if row["begins"] and row["tokens"] == row["drafts"] + 1 > 1
    ]
    ended = s.case.actual[-1]
    if isinstance(ended, Raised):
        there = ended.at is None or ended.at.function == "process_tokens"
        # A step that raises shows no rows.
        known = begun or [len(s.tokens[name]) for name in s.waiting]
        return there and any((count + most) // size > count // size for count in known)
    return any(count < s.wrong["tokens"] <= count + most for count in begun)


def _given_away_before_its_save(s: RecordedScenario) -> bool:
    """Whether another request got a block of the request whose tokens are saved: in a step behind the last one that the latter ran in, or a block that
    could be hit as its tokens until the last step.
    """
    tables = [step["tables"] for step in s.returned]
    ran = max((at for at, rows in enumerate(tables) if any(row[0] == s.request for row in rows)), default=-1)
    own = {block for rows in tables[: ran + 1] for name, _, _, block in rows if name == s.request}
    given = {block for rows in tables[ran + 1 :] for _, _, _, block in rows}
    hits = [{(name, block) for _, block, name, _ in step["published"]} for step in s.returned[-2:]]
    lost = {block for name, block in hits[0] - hits[-1] if name == s.request}
    others = {block for name, _, _, block in tables[-1] if name != s.request} | {
        block for _, block in hits[-1]
    }
    return bool(own & given or lost & others)


def _has_all_but_the_state(s: RecordedScenario) -> bool:
    """Whether all blocks of attention could be hit that the request had to load, before it began."""
    count, tokens = s.wrong["tokens"], s.tokens
    before = s.returned[-2]["published"] if len(s.returned) > 1 else ()
    return count == s.prompt(s.request) - 1 and any(
        group == 0 and there == count and tokens[name][:count] == tokens[s.request][:count]
        for group, _, name, there in before
    )


def _lacks_a_state_before_a_tail(s: RecordedScenario) -> bool:
    """Whether the request begins before the block inside of which it should begin, and before its step host memory had all that this takes, but in some recurrent group no state at the block's begin."""
    size, tokens, count = s.settings["block_size"], s.tokens, s.wrong["tokens"]
    boundary, recurrent = count // size * size, range(1, 1 + len(s.settings["kinds"]))
    had = {
        (group, there)
        for group, _, name, there in (s.returned[-2]["saved"] if len(s.returned) > 1 else ())
        if tokens[name][:there] == tokens[s.request][:there]
    }
    needed = {
        *((0, at) for at in range(size, boundary + 1, size)),
        *((group, count) for group in (0, *recurrent)),
    }
    begins = s.steps[-1][s.request]["computed"] < boundary < count
    return begins and needed <= had and not had.issuperset((group, boundary) for group in recurrent)


def _sat_out_with_a_ring(s: RecordedScenario) -> bool:
    """Whether the request had no part in a step behind a decode, and did not begin again since."""
    decodes = left_out = False
    for step in s.executed:
        row = step.get(s.request, NO_ROW)
        decodes, left_out = decodes and not row["begins"], left_out and not row["begins"]
        left_out |= decodes and s.request not in step
        decodes |= row["computed"] >= s.prompt(s.request)
    return left_out


def _gave_blocks_behind_its_row(s: RecordedScenario, number: int, name: str) -> bool:
    """Whether in that step a request of higher priority, which stands behind the place of `name` among those that run, got a block, or got none and lost its row, too."""
    added = [call.named["id"] for call in s.case.calls if call.function == "LiveEngine.add_request"]
    priorities = s.settings["priorities"]
    rank = {other: (priorities[at % len(priorities)], at) for at, other in enumerate(added)}
    begun = {
        other: at for at, step in enumerate(s.steps[:number]) for other, row in step.items() if row["begins"]
    }
    had = {(owner, block) for owner, _, _, block in s.returned[number - 1]["owners"]} if number else set()
    took = {owner for owner, _, _, block in s.returned[number]["tables"] if (owner, block) not in had}
    rows = s.steps[number]
    following = {other for other, row in rows.items() if not row["begins"] and other in took}
    ran = {*s.returned[number]["preempted"], *(s.steps[number - 1] if number else ())}
    return any(
        rank[other] < rank[name] and begun.get(other, 0) >= begun.get(name, 0)
        for other in following | ran.difference(rows)
    )


def _preempted_behind_its_row(s: RecordedScenario) -> bool:
    """Whether the wrong block became one that may be hit in a step in which a request of its tokens gave up its blocks for the row of another request, while no row of these tokens came to its end.

    A request that gives up its blocks for itself got none in the step, and leaves none that may be hit since then.
    """
    count, hits = (
        s.wrong["tokens"],
        [{(group, block, there) for group, block, _, there in step["published"]} for step in s.returned],
    )
    there = (s.wrong.get("group"), s.wrong.get("block"), count)
    since = len(hits) - sum(1 for _ in itertools.takewhile(lambda found: there in found, reversed(hits)))
    if since == len(hits):
        return False
    rows, of_block = s.steps[since], s.tokens.get(s.request, ())[:count]
    alike = [name for name, tokens in s.tokens.items() if tokens[:count] == of_block]
    taken_back = set(s.returned[since]["preempted"]).intersection(alike).difference(rows)
    comes_to = (
        row["computed"] < count <= row["computed"] + row["tokens"]
        for name, row in rows.items()
        if name in alike
    )
    gave = (_gave_blocks_behind_its_row(s, since, name) for name in taken_back)
    return any(gave) and not any(comes_to)


ENGINES: Mapping[str, Condition] = {
    "preempted_behind_its_row": of_scenario(
        lambda s: bool(s.settings["priorities"]) and s.settings["prefix_caching"],
        lambda s: s.law == "published" and _preempted_behind_its_row(s),
    ),
    "accepted_count_of_another_row": of_scenario(_moves_counts, lambda s: s.found_own and _rows_moved(s)),
    "first_token_of_gdn_in_an_engine": of_scenario(
        lambda s: "gdn" in s.settings["kinds"], lambda s: bool(s.wrong["tokens"] == 0)
    ),
    "shape_of_a_graph_of_decodes": of_scenario(_replays_graphs, _passed_over_with_a_prefill),
    "took_in_placeholders": of_scenario(lambda s: s.speculates, _took_in_placeholders),
    "padded_prompt": of_scenario(lambda s: s.speculates, _padded_prompt),
    "resumed_with_a_short_rest": of_scenario(
        lambda s: "mamba2" in s.settings["kinds"],
        lambda s: s.found_requests and _resumed_with_a_short_rest(s),
    ),
    "decode_without_drafts": of_scenario(
        lambda s: s.speculates and "gdn" in s.settings["kinds"], lambda s: s.found_own and _plain_decode(s)
    ),
    "saves_before_the_last_chunk": of_scenario(
        lambda s: s.settings["num_spec"] == 1 and bool(s.settings["checkpoints"]),
        lambda s: s.found_requests and _chunk_before_the_last(s),
    ),
    "column_of_a_hit": of_scenario(
        lambda s: _smaller_attention_blocks(s) and s.settings["runner"] == "V2", _column_of_a_hit
    ),
    "tail_published_again": of_scenario(
        lambda s: _hits_inside_blocks(s) and bool(s.settings["async_scheduling"]),
        lambda s: bool(s.wrong["tokens"] % s.block_size),
    ),
    "drafts_past_a_boundary": of_scenario(
        _keeps_every_boundary, lambda s: s.found_requests and _drafts_passed_there(s)
    ),
    "conv_rows_in_a_later_column": of_scenario(_keeps_every_boundary, _was_in_a_later_column),
    "decode_without_the_column_before": of_scenario(_keeps_every_boundary, _lacks_the_column_before),
    "smaller_attention_blocks": of_scenario(_smaller_attention_blocks, _crossed_there),
    "hits_inside_blocks": of_scenario(_hits_inside_blocks, _hit_inside_beside_others),
    "saves_inside_blocks": of_scenario(_saves_inside_blocks, _crossed_there),
    "waits_for_the_copy_of_a_hit": of_scenario(_hits_inside_blocks, _waits_for_more_blocks_than_there_are),
    "waits_between_items": of_scenario(
        lambda s: s.settings["method"] == "eagle" and s.speculates and len(s.settings["items"]) > 1,
        _waits_between_items,
    ),
    "dummy_batch_in_rows_of_requests": of_scenario(
        lambda s: s.settings["runner"] == "V1" and s.settings["padding"] > 0 and s.settings["dummy_batches"],
        lambda s: bool(s.wrong.get("dummy")) and _has_rested(s),
    ),
    "begins_for_ever": of_scenario(lambda s: bool(s.settings["async_scheduling"]), _begins_for_ever),
    "preempt_themselves_in_turn": of_scenario(
        lambda s: s.settings["stages"] > 1 and bool(s.settings["async_scheduling"]),
        _preempt_themselves_in_turn,
    ),
    "no_blocks_for_a_load": of_scenario(_loads_at_once, _has_no_blocks),
    "loaded_in_its_step": of_scenario(_loads_at_once, _loaded_in_its_step),
    "saves_for_ever": of_scenario(lambda s: s.settings["connector"] == "simple-lazy", _saves_for_ever),
    "has_all_but_the_state": of_scenario(
        lambda s: s.settings["connector"] == "nixl" and s.law == "hit", _has_all_but_the_state
    ),
    "lacks_a_state_before_a_tail": of_scenario(
        lambda s: (
            s.settings["connector"] == "offloading"
            and s.law == "hit"
            and not (s.settings["num_spec"] and s.settings["method"] == "eagle")
        ),
        _lacks_a_state_before_a_tail,
    ),
    "reset_again_before_a_step": of_scenario(
        lambda s: s.settings["connector"] == "offloading", _reset_again_before_a_step
    ),
    "sat_a_step_out": of_scenario(
        lambda s: s.speculates and s.settings["runner"] == "V1", lambda s: s.found_own and _sat_a_step_out(s)
    ),
    "corrected_twice": of_scenario(
        lambda s: _moves_counts(s) and s.settings["mamba_cache_mode"] == "align", _corrected_twice
    ),
    "sooner_than_its_token": of_scenario(
        lambda s: s.settings["stages"] > 1 and not s.settings["async_scheduling"], _sooner_than_its_token
    ),
    "passed_before_it_is_taken_in": of_scenario(
        lambda s: bool(s.settings["stages"] > 1 and s.speculates and s.settings["async_scheduling"]),
        lambda s: s.found_requests and _passed_before_it_is_taken_in(s),
    ),
    "receives_another_width": of_scenario(
        lambda s: bool(s.settings["stages"] > 1 and s.speculates), _receives_another_width
    ),
    "preempted_by_a_reset_with_a_store": of_scenario(
        lambda s: s.settings["connector"] == "mooncake", _forgets_what_a_reset_preempted
    ),
    "given_away_before_its_save": of_scenario(
        lambda s: s.settings["connector"] == "offloading" and s.settings["runner"] == "V2",
        _given_away_before_its_save,
    ),
    "placeholders_in_a_store": of_scenario(
        lambda s: s.speculates and s.settings["connector"] == "mooncake", _saves_placeholders
    ),
    "sat_out_with_a_ring": of_scenario(
        lambda s: s.settings["replayssm_buffer_len"] > 1,
        lambda s: s.found_own_or_unknown and _sat_out_with_a_ring(s),
    ),
    "stuck_after_a_failed_load": of_scenario(
        lambda s: bool(s.settings["failing_loads"]), _stuck_after_a_failed_load
    ),
    "reset_with_a_step_in_flight": of_scenario(
        lambda s: bool(s.settings["connector"] and s.settings["async_scheduling"]),
        _reset_with_a_step_in_flight,
    ),
    "stuck_after_loads": of_scenario(
        lambda s: s.speculates and s.settings["connector"] == "async", _stuck_after_loads
    ),
}
