"""Version 1 of the protocol, which ports may still follow: the functions and arguments that had other names in it."""

from types import ModuleType

FUNCTIONS_IN_1 = {
    "preprocess_by_slot": "advance_columns",
    "precopy_states": "bring_states_along",
    "postprocess_by_slot": "store_states_by_slot",
    "postprocess_by_row": "store_states_by_row",
    "preprocess_by_row": "prepare_rows",
    "drop_columns": "forget_columns",
}
ARGUMENTS_IN_1 = {
    "src_ptrs": "src",
    "dst_ptrs": "dst",
    "num_accepted_tokens": "num_accepted",
    "num_accepted_tokens_out": "num_accepted_out",
    "num_computed_tokens": "num_computed",
    "num_scheduled_tokens": "num_scheduled",
    "num_draft_tokens": "num_drafts",
}


def function_of(port: ModuleType, function: str) -> str:
    """What the port calls a function of the protocol."""
    return FUNCTIONS_IN_1.get(function, function) if _follows_1(port) else function


def argument_of(port: ModuleType, argument: str) -> str:
    """What the port calls an argument of such a function."""
    return ARGUMENTS_IN_1.get(argument, argument) if _follows_1(port) else argument


def renamed_since_1(port: ModuleType) -> dict[str, str]:
    """Names of version 1 that a port of a later version has, and lacks under today's name."""
    if _follows_1(port):
        return {}
    return {old: new for new, old in FUNCTIONS_IN_1.items() if hasattr(port, old) and not hasattr(port, new)}


def _follows_1(port: ModuleType) -> bool:
    return getattr(port, "STATECHECK_PROTOCOL", None) == 1
