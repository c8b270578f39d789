"""A case of a whole engine, as conditions look at it: its settings, its steps, and the wrong state that the broken step shows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from statecheck.case import Case
from statecheck.case.values import Call, Record, Returned
from statecheck.subject.known import Condition

Row = Mapping[str, Any]
"""The scheduler's decision for a request in a step: computed, tokens, drafts, begins."""
NO_ROW: Row = {"computed": -1, "tokens": 0, "drafts": 0, "begins": False}
_USUAL = {
    "kinds": ("gdn",),
    "layers": 1,
    "block_size": 4,
    "attention_block_size": 0,
    "num_spec": 0,
    "kernels": False,
    "method": "ngram",
    "prefix_caching": True,
    "max_num_batched_tokens": 16,
    "items": (),
    "late_stages": (),
    "mamba_cache_mode": "align",
    "async_scheduling": False,
    "prefix_match_unit": 0,
    "checkpoints": False,
    "padding": 0,
    "runner": "V2",
    "connector": "",
    "failing_loads": (),
    "replayssm_buffer_len": 0,
    "stages": 1,
    "dummy_batches": False,
    "priorities": (),
}


class RecordedScenario:
    def __init__(self, case: Case) -> None:
        self.case = case

    @cached_property
    def settings(self) -> dict[str, Any]:
        return _USUAL | dict(self.case.calls[0].named["settings"].fields)

    @property
    def speculates(self) -> bool:
        return bool(self.settings["num_spec"] > 0)

    @property
    def block_size(self) -> int:
        """Of the recurrent groups."""
        return int(self.settings["block_size"])

    @property
    def attention_block_size(self) -> int:
        return self.settings["attention_block_size"] or self.block_size

    @cached_property
    def law(self) -> str:
        """The law that the failure breaks."""
        return self.case.failure.part.rpartition(".")[2] if self.case.failure is not None else ""

    @cached_property
    def returned(self) -> list[Record]:
        """Results of the steps."""
        ended = (outcome.value for outcome in self.case.actual if isinstance(outcome, Returned))
        return [value for value in ended if isinstance(value, Record) and value.type == "LiveStep"]

    @cached_property
    def steps(self) -> list[dict[str, Row]]:
        """The scheduler's decisions, step by step, for each request of the step."""
        return [{name: dict(row) for name, row in dict(step["scheduled"]).items()} for step in self.returned]

    @cached_property
    def runs(self) -> list[bool]:
        """Of each step, whether the worker runs. Where it does not, requests keep their rows.

        It does not run in the steps without rows in a pause that empties no cache, unless a request has ended since the last step, or a connector may want them.
        """
        runs, paused, ended = list[bool](), False, bool(self.settings["connector"])
        for call, outcome in zip(self.case.calls, self.case.actual, strict=True):
            paused |= self.pauses(call)
            ended |= call.function.endswith("abort")
            step = outcome.value if isinstance(outcome, Returned) else None
            if not isinstance(step, Record) or step.type != "LiveStep":
                continue
            rows = bool(step["scheduled"])
            runs.append(rows or ended or not paused)
            paused &= not rows
            ended = bool(self.settings["connector"] or dict(step.fields).get("finished"))
        return runs

    @property
    def executed(self) -> list[dict[str, Row]]:
        """`steps` in which the worker runs."""
        return list(itertools.compress(self.steps, self.runs))

    def pauses(self, call: Call) -> bool:
        """Whether the engine pauses with its requests and its caches as they are. An engine in stages never sleeps, see `LiveEngine.sleep`."""
        keeps = call.function == "LiveEngine.sleep" and call.named["mode"] == "keep"
        return keeps and (call.named["level"] == 0 or self.settings["stages"] > 1)

    @property
    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every row of every step, with its request."""
        return ((name, row) for step in self.steps for name, row in step.items())

    @cached_property
    def wrong(self) -> dict[str, Any]:
        """The fields of what `LiveLaws` saw that breaks the law; nothing where there is none."""
        last = self.case.actual[-1] if self.case.actual else None
        step = last.value if isinstance(last, Returned) else None
        findings = step["findings"] if isinstance(step, Record) and step.type == "LiveStep" else ()
        nothing = {"request": "", "tokens": -1, "found": (), "conv": False, "runs": -1}
        return nothing | next((dict(about) for broken, *_, about in findings if broken == self.law), {})

    @property
    def request(self) -> str:
        """The request whose state is wrong."""
        return str(self.wrong["request"])

    @property
    def row(self) -> Row:
        """The last step's row of that request; of no tokens where it had no part."""
        return self.steps[-1].get(self.request, NO_ROW) if self.steps else NO_ROW

    def prompt(self, name: str) -> int:
        """Tokens of a request's prompt."""
        return len(self.prompts.get(name, ()))

    @cached_property
    def prompts(self) -> dict[str, tuple[int, ...]]:
        """By request, in the order in which they came in."""
        adds = (call.named for call in self.case.calls if call.function.endswith("add_request"))
        return {arguments["id"]: tuple(arguments["prompt"]) for arguments in adds}

    @property
    def tokens(self) -> dict[str, tuple[int, ...]]:
        """By request, its prompt and what it has said."""
        known = dict(self.prompts)
        for step in self.returned:
            for name, said in dict(step["outputs"]).items():
                known[name] = (*known.get(name, ()), *said)
        return known

    @property
    def waiting(self) -> list[str]:
        """Requests that have neither ended nor been aborted."""
        waiting = list[str]()
        for call, outcome in zip(self.case.calls, self.case.actual, strict=True):
            step = outcome.value if isinstance(outcome, Returned) else None
            if call.function.endswith("add_request"):
                waiting.append(call.named["id"])
            elif call.function.endswith("abort"):
                waiting = [name for name in waiting if name != call.named["id"]]
            elif call.named.get("mode") == "abort":
                waiting.clear()
            elif isinstance(step, Record) and step.type == "LiveStep":
                waiting = [name for name in waiting if name not in step["finished"]]
        return waiting

    @property
    def found_own(self) -> bool:
        """Whether states of the request itself were found, after another count of tokens or after drafts."""
        return self._found(lambda owner: owner == self.request)

    @property
    def found_own_or_unknown(self) -> bool:
        """As `found_own`, or what is no request's state."""
        return self._found(lambda owner: owner in (self.request, "?"))

    @property
    def found_requests(self) -> bool:
        """Whether states of requests, or zeros, were found. A block may be named after another request than its writer."""
        return self._found(lambda owner: owner not in ("?", "@"))

    def _found(self, allowed: Callable[[str], bool]) -> bool:
        return bool(self.wrong["found"]) and all(allowed(owner) for owner, *_ in self.wrong["found"])


def of_scenario(
    inputs: Callable[[RecordedScenario], bool], outcome: Callable[[RecordedScenario], bool] = lambda _: True
) -> Condition:
    """A condition of the engine, which is known before a scenario fails, and of what the scenario shows."""
    return Condition(
        lambda case, _: inputs(RecordedScenario(case)), lambda case, _: outcome(RecordedScenario(case))
    )
