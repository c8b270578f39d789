"""A statement names the rule that it asks, and no other one."""

from __future__ import annotations

import ast
import re

import pytest

from oracle.chunks import varlen_chunk_metadata
from oracle.types import cdiv, divide
from statecheck import rooms
from statecheck.case.values import call
from statecheck.expectations.symbols import require_rule

SEVERAL = {
    "take_through": "both runners",
    "test_starts_that_changed_in_place_give_a_fresh_result": "four functions with the same starts",
    "test_metadata_that_changed_in_place_gives_fresh_computed_tokens": "two functions of a batch",
    "test_results_for_full_graphs_live_in_the_builder_s_own_buffers": "memory, of which there is no rule",
    "test_a_context_is_bound_once": "a session of several calls",
    "test_no_slot_has_two_owners_and_none_is_lost": "owners of slots, which the adapter counts after each operation",
}
"""Statements about several rules, or about none."""
OTHER_VERDICTS = {"holds", "refuses", "returns", "finds"}
OTHER_SUBJECTS = re.compile("refused$|_waits?_")
"""Statements about refusals, and about what a call costs."""


def verdicts(function: ast.FunctionDef) -> list[ast.Call]:
    """The calls of `trial` in a statement's body."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    methods = (
        one for one in calls if isinstance(one.func, ast.Attribute) and isinstance(one.func.value, ast.Name)
    )
    return [one for one in methods if one.func.value.id == "trial"]  # type: ignore[attr-defined]


def test_a_statement_that_only_agrees_names_its_rule() -> None:
    unnamed = set()
    for path in rooms.property_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            calls = verdicts(function)
            agrees = [one for one in calls if one.func.attr.startswith("agrees")]  # type: ignore[attr-defined]
            others = {one.func.attr for one in calls} & OTHER_VERDICTS  # type: ignore[attr-defined]
            named = any(keyword.arg == "rule" for one in agrees for keyword in one.keywords)
            if agrees and not named and not others and not OTHER_SUBJECTS.search(function.name):
                unnamed.add(function.name)
    assert unnamed == set(SEVERAL)


def test_another_rule_is_refused() -> None:
    asked = call("cdiv", x=1, y=2)
    require_rule(asked, cdiv)
    with pytest.raises(
        ValueError, match=r"rule = oracle.types.divide, but should be oracle.types.cdiv \[cdiv\]"
    ):
        require_rule(asked, divide)
    launch = call("harness.launch", kernel="precopy_mamba_align_fused_kernel")
    with pytest.raises(ValueError, match=r"but should be oracle.align.decisions.precopy_moves \[precopy_"):
        require_rule(launch, varlen_chunk_metadata)
