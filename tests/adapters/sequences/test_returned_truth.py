"""Returned values of a port's operations: done, failed, or neither of the two."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from subjects.sequences import adapted
from tests.adapters.sequences import reference_port

OPERATIONS = {
    "fork": (0, 0, 1),
    "roll_back": (0, 0, 1),
    "load": (0, 0, "a"),
    "drop": (0, 0),
    "reorder": (0, (0, 1)),
}
operations = pytest.mark.parametrize("name", OPERATIONS)


def scenario(name: str, value: Any) -> Any:
    """A sequence of two tokens, of a port whose operation of that name returns a value and does nothing."""
    port = ModuleType("reference_port_that_returns")
    vars(port).update(vars(reference_port))
    setattr(port, name, lambda *_: value)
    made = adapted(port).module.Sequences("small", 1, {})
    made.extend(0, [(0, (3, 5))], {})
    if name == "load":
        made.save(0, 0, "a")
    return made


@operations
@pytest.mark.parametrize("value", [False, np.False_, np.array(False), torch.tensor(False)], ids=repr)
def test_an_operation_that_returns_false_has_not_happened(name: str, value: Any) -> None:
    step = getattr(scenario(name, value), name)(*OPERATIONS[name])
    assert step["happened"] is False


@pytest.mark.parametrize("value", [False, np.False_, torch.tensor(False)], ids=repr)
def test_a_save_that_returns_false_has_not_happened(value: Any) -> None:
    assert scenario("save", value).save(0, 0, "a")["happened"] is False


@pytest.mark.parametrize("value", [None, True, np.True_], ids=repr)
def test_an_operation_that_returns_none_or_true_has_happened(value: Any) -> None:
    assert scenario("drop", value).drop(0, 0)["happened"] is True


@operations
@pytest.mark.parametrize("value", [0, 1, 0.0, "", [], np.int64(0), np.array([False, True])], ids=repr)
def test_an_operation_that_returns_no_truth_value_is_an_error_of_the_port(name: str, value: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"^{name} = .*, but should be None where it happened, True or False"
    ):
        getattr(scenario(name, value), name)(*OPERATIONS[name])


@pytest.mark.parametrize("value", [False, np.False_], ids=repr)
def test_logits_and_tokens_are_needed(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^generate = False, but should be tokens"):
        scenario("generate", value).generate(0, 0, 1, {})
