"""Files of earlier versions: properties and functions that had another name, and cases with a sentence in place of a `Failure`."""

from __future__ import annotations

from collections.abc import Sequence

from statecheck.case.compare import outcome_difference
from statecheck.case.failure import Failure, failure_of, raised_instead, stated
from statecheck.case.faults import DEVICE_FAULT
from statecheck.case.findings import FINDINGS
from statecheck.case.values import Call, Expected, Outcome, Raised

_EXACTLY = "live_by_the_states_of_exactly_their_tokens"
_READ = "read_the_state_of_their_tokens"
_MOST = "entries_behind_the_programs_are_fillers_up_to_twice_the_larger_of_1024_and_them"
_LISTED = "a_state_that_stays_is_not_written_down_and_nothing_written_is_nothing_copied"

FORMER_NAMES = {
    f"requests_in_rows_{_EXACTLY}": f"requests_in_rows_{_READ}",
    f"requests_in_slots_{_EXACTLY}": f"requests_in_slots_{_READ}",
    f"requests_without_copies_{_EXACTLY}": f"requests_without_copies_{_READ}",
    f"requests_in_the_release_with_its_first_runner_{_EXACTLY}": f"requests_in_the_first_runner_{_READ}",
    f"requests_in_the_release_with_its_second_runner_{_EXACTLY}": f"requests_in_the_second_runner_{_READ}",
    f"requests_in_the_release_with_its_first_runner_and_a_connector_{_EXACTLY}": (
        f"connected_requests_in_the_first_runner_{_READ}"
    ),
    f"requests_in_the_release_with_its_second_runner_and_a_connector_{_EXACTLY}": (
        f"connected_requests_in_the_second_runner_{_READ}"
    ),
    "accepted_counts_on_the_host_that_no_step_has_are_refused": (
        "counts_and_lengths_on_the_host_that_no_step_has_are_refused"
    ),
    "blocks_beyond_32_bits_are_brought_along": "blocks_beyond_32_bits_are_precopied",
    "no_order_of_programs_shows_in_what_is_brought_along": "no_order_of_programs_shows_in_what_is_precopied",
    "nothing_is_brought_along_through_a_sentinel": "nothing_is_precopied_through_a_sentinel",
    "states_behind_dozens_of_idle_rows_are_brought_along": "states_behind_dozens_of_idle_rows_are_precopied",
    "the_kernel_that_brings_states_along_may_be_launched_as_documented": (
        "the_precopy_kernel_may_be_launched_as_documented"
    ),
    "bringing_states_along_never_waits_for_the_device": "precopying_never_waits_for_the_device",
    "bringing_states_along_changes_nothing_outside_of_the_states_of_requests": (
        "precopying_changes_nothing_outside_of_the_states_of_requests"
    ),
    "bringing_states_along_changes_no_block_but_those_where_requests_go_on": (
        "precopying_changes_no_block_but_those_where_requests_go_on"
    ),
    "a_state_is_brought_to_the_column_where_its_request_goes_on": (
        "a_state_is_precopied_to_the_column_where_its_request_goes_on"
    ),
    "a_block_that_nobody_owns_is_refused": "a_block_without_an_owner_is_refused",
    _MOST: "entries_behind_the_programs_are_fillers",
    _LISTED: "a_state_that_stays_is_not_listed_and_an_empty_list_copies_nothing",
}
"""A property's name today, by the name that it had."""
FORMER_FUNCTIONS = {"harness.sing": "harness.canary_identity"}
"""A function of the harness that cases call, by the name that it had."""
_FIRST = {name: former for former, name in FORMER_NAMES.items()}


def name_today(name: str) -> str:
    """The name that the property has today."""
    return FORMER_NAMES.get(name, name)


def first_name(name: str) -> str:
    """The name that a property of today had first: ids and files that are made of names keep it, so that they stay the same."""
    return _FIRST.get(name, name)


def failure_in(
    message: str, calls: Sequence[Call], expected: Sequence[Expected], actual: Sequence[Outcome], device: str
) -> Failure:
    """What a case's message says, as far as outcomes and sentence say; its rule is the one that its bucket had."""
    places = device != "cpu"
    functions = dict.fromkeys(call.function for call in calls)
    function = next((name for name in functions if f" [{name}(" in message), "")
    sentence, _, shown = message.partition(f" [{function}(") if function else (message, "", "")
    shown = f"{function}({shown.removesuffix(']')}" if function else ""
    for number, (call, wanted, seen) in enumerate(zip(calls, expected, actual, strict=False)):
        difference = outcome_difference(wanted, seen, places=places)
        fatal = isinstance(seen, Raised) and (seen.exception == DEVICE_FAULT or seen.exception in FINDINGS)
        if difference is not None and (fatal or message.startswith(f"{difference} [")):
            return failure_of(difference, wanted, seen, function=call.function, call=number, shown=shown)
    last = actual[-1] if actual else None
    if isinstance(last, Raised) and message.startswith(f"the call = {last.exception}: {last.message}"):
        return raised_instead(last, function=calls[-1].function, call=len(calls) - 1, shown=shown)
    observed, _, rest = sentence.partition(", but ")
    return stated(observed, rest, function=function, shown=shown)
