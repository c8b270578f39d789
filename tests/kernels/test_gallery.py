"""Broken kernels: the sanitizer names what is wrong with each, and blames no intact twin."""

from __future__ import annotations

import pytest

from tests.gallery import bounds, contents, faults, races
from tests.gallery.exhibit import Exhibit

pytestmark = pytest.mark.usefixtures("executed")

EXHIBITS = (*bounds.EXHIBITS, *races.EXHIBITS, *contents.EXHIBITS, *faults.EXHIBITS)
every_exhibit = pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda one: one.name)


@every_exhibit
def test_the_sanitizer_names_what_is_wrong(exhibit: Exhibit) -> None:
    assert exhibit.run(exhibit.broken)[0].startswith(f"{exhibit.finding}: ")


@every_exhibit
def test_an_intact_twin_does_what_it_should_and_is_not_blamed(exhibit: Exhibit) -> None:
    found, held, wanted = exhibit.run(exhibit.intact)
    assert (found, held) == ("", wanted)
