"""Interleavings as an input: what they find of the implementation broken on purpose, and how few switches show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from properties.harness import profiles
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.execution.example import Bench, Falsified
from properties.harness.execution.fewest_switches import simpler, with_fewest_switches
from properties.harness.execution.replay import replay
from properties.harness.kernels.switches import parsed
from properties.harness.port import InProcess
from properties.harness.registry import load_properties
from properties.harness.values import Call
from properties.harness.variants import Variant, broken_subject
from properties.subjects import Subject

pytestmark = pytest.mark.usefixtures("executed")

BY_SLOT = "no_order_of_programs_shows_in_what_is_stored_by_slot"
"""Counts are set as soon as a program is done, while others still have to decide by the counts before."""
AT_ONCE = Variant(
    "counts_at_once", "align/kernels/postprocess.py", "if last_to_finish(programs, counters_ptr):", "if resets > 0:"
)


@pytest.fixture(autouse=True, scope="module")
def _without_a_database() -> Iterator[None]:
    settings.register_profile("no_database", settings(database=None))
    settings.load_profile("no_database")
    yield
    profiles.load()


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    with broken_subject(AT_ONCE, tmp_path_factory.mktemp("at_once")) as subject:
        yield subject
