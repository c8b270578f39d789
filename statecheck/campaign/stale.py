"""When a declared defect counts as gone: one rule for campaigns and for test runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHOWED, GONE, NOT_ENOUGH, NOT_TRIED = "showed", "no longer fails", "not tried enough", "not tried"
_TIMES = 10
"""As many times as it takes examples to show a defect once, after which it should have shown.

Of a defect that one example in n shows, 10 n examples miss it once in 22,000 times."""


@dataclass(frozen=True)
class TriedProperty:
    """What came of a property in which a defect may show.

    Args:
        applies: whether the property says something about the subject.
        compared: examples that were compared.
        reason: why there were none, or no more.
    """

    applies: bool
    compared: int
    reason: str = ""


def enough(one_in: int) -> int:
    """The compared examples of each of its properties after which a defect that did not show is gone.

    Args:
        one_in: see `KnownDeviation`.
    """
    return _TIMES * one_in


def standing_of(
    one_in: int, rows: Sequence[TriedProperty], *, showed: bool, complete: bool
) -> tuple[str, str]:
    """What to think of a declared defect, and a remark.

    Args:
        rows: the properties in which it may show, as far as they were chosen.
        complete: whether these are all of its properties.
    """
    if showed:
        return SHOWED, ""
    tried = [row for row in rows if row.applies and row.compared]
    if not tried:
        reasons = dict.fromkeys(row.reason for row in rows if row.reason)
        return NOT_TRIED, "; ".join(reasons) if rows else "none of its properties was chosen"
    gone = complete and all(not row.applies or row.compared >= enough(one_in) for row in rows)
    many = f"{len(tried)} propert{'y' if len(tried) == 1 else 'ies'}"
    remark = f"{sum(row.compared for row in tried):,} examples of {many} did not show it"
    return GONE if gone else NOT_ENOUGH, remark
