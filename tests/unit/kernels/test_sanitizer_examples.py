"""The examples of the sanitizer: it names what is wrong with each broken kernel, and blames no intact twin."""

from __future__ import annotations

import pytest

from examples.sanitizer import PAIRS
from examples.sanitizer.kernel_pair import KernelPair

pytestmark = pytest.mark.usefixtures("executed")
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)


@every_pair
def test_the_sanitizer_names_what_is_wrong_with_a_broken_kernel(pair: KernelPair) -> None:
    assert pair.run(pair.broken)[0].startswith(f"{pair.finding}: ")


@every_pair
def test_an_intact_kernel_computes_the_expected_contents_without_a_finding(pair: KernelPair) -> None:
    finding, contents, expected = pair.run(pair.intact)
    assert (finding, contents) == ("", expected)
