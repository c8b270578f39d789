"""Hypothesis profiles: `dev` at the desk, `ci` the same inputs every time, `nightly` fresh ones every time.

`brief` is `dev` with fewer examples, for suites that are repeated under other settings.

Hypothesis loads a profile of its own called "ci" wherever the variable CI is set, and that one has no database.
Ours replaces it, and a campaign always loads `nightly` by name.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

from statecheck.execution.private.hypothesis import (
    leave_out_own_constants,
    make_no_mutations,
    make_no_short_examples,
    read_no_composites,
)


def register() -> None:
    """Make the profiles known to Hypothesis, and have it draw no constants of the harness, no mutations and no short examples."""
    leave_out_own_constants()
    make_no_mutations()
    make_no_short_examples()
    read_no_composites()
    # Settings inherit from the profile that is loaded, which may be the one without a database.
    base = settings(
        settings.get_profile("default"),
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        # A case says more than Hypothesis's explanation, which runs a shrunk example many more times.
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )
    settings.register_profile("dev", base, max_examples=100)
    settings.register_profile("brief", base, max_examples=20)
    settings.register_profile("ci", base, max_examples=100, derandomize=True, database=None)
    settings.register_profile(
        "nightly",
        base,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )


def limit(max_examples: int | None) -> None:
    """Let each property have at most so many examples; None leaves it to the profile.

    Raises:
        ValueError: not a positive number.
    """
    if max_examples is None:
        return
    if max_examples < 1:
        raise ValueError(f"max_examples = {max_examples}, but should be >= 1 [limit]")
    settings.register_profile("limited", settings(max_examples=max_examples))
    settings.load_profile("limited")


def load(name: str | None = None) -> str:
    """Load the profile `name`, by default `ci` where the variable CI is set and `dev` elsewhere; returns its name."""
    register()
    chosen = name or ("ci" if os.environ.get("CI") else "dev")
    settings.load_profile(chosen)
    return chosen
