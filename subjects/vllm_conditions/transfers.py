"""Conditions about states that are sent between engines of unequal numbers of ranks."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.subject.known import Condition


def _unequal_ranks(case: Case, _: Profile) -> bool:
    sent = case.calls[-1].named
    return bool(sent["source_tp"] != sent["target_tp"])


def _one_group_for_unequal_ranks(case: Case, profile: Profile) -> bool:
    """Each rank has the one group of a Mamba-2 model, and the engines have unequal numbers of ranks."""
    sent = case.calls[-1].named
    groups = dict(sent["sizes"]).get("n_groups")
    return sent["family"] == "mamba2" and groups == 1 and _unequal_ranks(case, profile)


TRANSFERS: Mapping[str, Condition] = {
    "unequal_ranks": Condition(inputs=_unequal_ranks),
    "one_group_for_unequal_ranks": Condition(inputs=_one_group_for_unequal_ranks),
}
