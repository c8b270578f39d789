"""The functions that a port offers are named at every start, and a name that is a slip is asked about."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from statecheck.cli import main as cli
from statecheck.execution.selection import Offers
from statecheck.execution.verdict import MISCONFIGURED
from statecheck.suite.items import suite_of
from statecheck.util.text import listed
from subjects import adapted, load
from tests.helpers.cases import toy

NOWHERE = (__file__, 1)


def nothing(**_: Any) -> None:
    """A function that takes anything."""


def port(protocol: bool = True, **names: Any) -> ModuleType:
    made = ModuleType("toy_port")
    vars(made).update(({"STATECHECK_PROTOCOL": 2} if protocol else {}) | names)
    return made


def test_plain_functions_are_counted_by_the_names_of_the_protocol() -> None:
    offers = Offers(adapted(port(chunk_offsets=nothing, query_lens=nothing)))
    assert offers.sentence == "toy_port offers 2 of 20: chunk_offsets, query_lens"


def test_a_function_that_no_property_calls_alone_is_named_with_the_missing_ones() -> None:
    alone = Offers(adapted(port(copy_runs=nothing)))
    assert (
        alone.sentence
        == "toy_port offers 1 of 20: copy_runs; no property calls copy_runs without list_copies"
    )
    assert not Offers(adapted(port(copy_runs=nothing, list_copies=nothing))).uncalled


def test_documented_functions_are_counted_by_the_names_that_properties_call() -> None:
    assert Offers(toy(cdiv=nothing)).sentence == "toy offers 1 of 59: cdiv"
    assert Offers(load("impl")).offered == Offers(load("impl")).names


def test_a_library_of_sequences_offers_its_operations_and_no_plain_function() -> None:
    operations = dict.fromkeys(("models", "new", "extend", "length", "drop", "save", "load"), nothing)
    library = adapted(port(protocol=False, __file__=__file__, STATECHECK_SEQUENCES=1, **operations))
    assert Offers(library).sentence == "toy_port offers Sequences with drop, load, save"


def test_a_name_close_to_a_function_that_is_missing_is_asked_about() -> None:
    offers = Offers(adapted(port(chunk_offset=nothing, query_lens=nothing)))
    assert (
        offers.sentence
        == "toy_port offers 1 of 20: query_lens; it has chunk_offset: did you mean chunk_offsets?"
    )
    assert Offers(toy(prepare_chunk_offset=nothing)).alike == {
        "prepare_chunk_offset": "prepare_chunk_offsets"
    }


def test_a_helper_beside_the_function_that_it_resembles_is_none_of_our_business() -> None:
    assert not Offers(adapted(port(chunk_offset=nothing, chunk_offsets=nothing))).alike


def test_a_port_of_slips_only_is_told_which_names_were_meant() -> None:
    with pytest.raises(
        ValueError, match=r"functions = none, .*; did you mean chunk_offsets by chunk_offset\?"
    ):
        adapted(port(chunk_offset=nothing))


@pytest.mark.parametrize("near", ["", "STATECHECK_PROTOCL"])
def test_plain_functions_without_the_protocol_s_line_are_refused(near: str) -> None:
    names: dict[str, Any] = {"chunk_offsets": nothing} | ({near: 1} if near else {})
    with pytest.raises(
        ValueError, match="STATECHECK_PROTOCOL = missing, but should be 2 in a module"
    ) as caught:
        adapted(port(protocol=False, **names))
    assert ("did you mean it by STATECHECK_PROTOCL?" in str(caught.value)) == bool(near)


def test_the_documents_names_need_no_line_and_may_stand_beside_helpers() -> None:
    both = port(protocol=False, query_lens=nothing, prepare_chunk_offsets=nothing)
    assert adapted(both).has("prepare_chunk_offsets")


def test_required_functions_have_to_be_offered() -> None:
    offers = Offers(adapted(port(chunk_offset=nothing, query_lens=nothing)))
    offers.require(("query_lens",))
    with pytest.raises(
        ValueError, match=r"require = 'query_lens,chunk_offsets', .* does not offer chunk_offs"
    ):
        offers.require(("query_lens", "chunk_offsets"))
    with pytest.raises(ValueError, match=r"require = 'query_len', .*; did you mean query_lens\?"):
        offers.require(("query_len",))


def test_names_are_separated_by_commas() -> None:
    assert listed(" a,b ,") == ("a", "b")


@pytest.mark.parametrize("command", ["fuzz", "nightly"])
def test_a_campaign_that_lacks_what_it_requires_does_not_begin(
    command: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = ("--reports", str(tmp_path / "reports"))
    code = cli.main([command, "--subject", "json", "--device", "cpu", "--require", "cdiv", *reports])
    assert code == MISCONFIGURED
    assert "error: require = 'cdiv', but should be offered by json" in capsys.readouterr().err
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"device": "gpu"}, "device = 'gpu', but should be auto, cpu or cuda"),
        ({"max_examples": 0}, "max_examples = 0, but should be >= 1"),
        ({"known": "no_such.toml"}, "should be a readable file .*no_such.toml"),
        ({"require": ["cdiv", "divide"]}, "require = 'cdiv,divide', but should be offered by toy"),
    ],
)
def test_a_suite_refuses_what_means_nothing(arguments: dict[str, Any], complaint: str, device: str) -> None:
    given: dict[str, Any] = {"device": device, "known": None, "require": (), "max_examples": None}
    module = ModuleType("toy")
    vars(module).update(cdiv=nothing)
    with pytest.raises(ValueError, match=complaint):
        suite_of(module, NOWHERE, **given | arguments)


def test_known_defects_of_one_test_are_none_of_another(tmp_path: Any, device: str) -> None:
    (tmp_path / "known.toml").write_text("")
    module = port(chunk_offsets=nothing)
    vars(module)["SUBJECT"] = adapted(module)
    module.SUBJECT.known_deviations = ("declared",)
    given: dict[str, Any] = {"device": device, "require": (), "max_examples": None}
    suite: Any = suite_of(module, NOWHERE, known=tmp_path / "known.toml", **given)
    assert (suite.context.subject.known_deviations, module.SUBJECT.known_deviations) == ((), ("declared",))
