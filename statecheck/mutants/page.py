"""The results as a page: score by file and operator, and each survivor."""

from __future__ import annotations

from collections import Counter

from statecheck.mutants.plan import MutantPlan, possible, valid
from statecheck.mutants.results import merged


def summary(plan: MutantPlan) -> list[str]:
    """A line for each target: possible, judged, and what became of them."""
    results, lines = merged(plan.folder), []
    for target in plan.targets:
        known = valid(target, results)
        counts = Counter(one.status for one in known.values())
        counted = ", ".join(f"{number} {status}" for status, number in counts.most_common())
        spent = sum(one.seconds for one in known.values())
        lines.append(
            f"{target.package}: {len(possible(target))} possible, {len(known)} judged in {spent:.0f} s of CPU time: {counted}"
        )
    return lines
