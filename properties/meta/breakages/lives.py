"""Lives of a release's own engine, until one of them breaks a law."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from properties.subjects import Subject


def lives_until_wrong(subject: Subject, property_id: str, examples: int, seed: int) -> tuple[int, str]:
    """How many lives of the property there were, and what the last one showed, "" where none showed anything.

    What it showed is not shrunk. The process has prepared Triton for a CPU before it imported the release.
    """
    from hypothesis import HealthCheck, Phase, settings

    from properties.harness.execution.example import Bench, Falsified
    from properties.harness.execution.port import ordinary_port
    from properties.harness.execution.registry import load_properties

    bench = Bench(subject, ordinary_port(subject, "cpu"))
    tested = next(one for one in load_properties().values() if one.id == property_id)
    chosen = settings(
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    settings.register_profile("planted", chosen)
    settings.load_profile("planted")
    try:
        tested.explore(bench, seed=seed, max_examples=examples)
    except Falsified as found:
        return bench.examples, str(found)
    return bench.examples, ""
