"""Results that no property can read: the subject is wrong, and not the harness, whatever a function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings

from examples import numpy_port
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.subject import Subject
from subjects import load
from subjects.plain import adapted
from tests.helpers.slow import slow_after


def longer(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return torch.cat([found, found, found.new_ones((1, *found.shape[1:]))]) if found.dim() else found
    return [*found, *found, found[-1]] if len(found) else [0]


def parts(found: Any, changed: Callable[[Any], Any]) -> Any:
    """With each part changed that has parts; as it is where none has."""
    return [changed(part) if hasattr(part, "__len__") else part for part in found]


class Lying(list[Any]):
    """Says of itself that it has other items than it has."""

    def __iter__(self) -> Iterator[Any]:
        return iter([*super().__iter__()][:-1])


LIES = "a list that lies"
WRONG: dict[str, Callable[[Any], Any]] = {
    "None": lambda found: None,
    "text": lambda found: "text",
    "nested": lambda found: [[[found]]],
    "a tensor without dimensions": lambda found: torch.tensor(7),
    "a generator": lambda found: (part for part in found) if hasattr(found, "__len__") else None,
}
"""Of these, every property of the function is to say that they are wrong."""
LENGTHS: dict[str, Callable[[Any], Any]] = {
    LIES: lambda found: Lying([*found, 0]) if isinstance(found, list) else None,
    "empty": lambda found: found[:0],
    "too short": lambda found: found[:-1],
    "too long": longer,
    "parts too short": lambda found: parts(found, lambda part: part[:-1]),
    "parts of None": lambda found: parts(found, lambda part: None),
}
"""Properties may have nothing to say about these."""
PLAIN = {
    "varlen_chunks": "compute_varlen_chunk_metadata",
    "conv_tiles": "compute_causal_conv1d_metadata",
    "chunk_indices": "prepare_chunk_indices",
    "chunk_offsets": "prepare_chunk_offsets",
    "split_batch": "split_decodes_and_prefills",
    "query_lens": "CommonAttentionMetadata.naive_query_lens",
    "num_computed_tokens": "CommonAttentionMetadata.compute_num_computed_tokens",
    "gather_block_table": "mamba_get_block_table_tensor",
    "state_shapes": "MambaStateShapeCalculator.mamba2_state_shape",
    "conv_copy": "get_conv_copy_spec",
    "temporal_copy": "get_temporal_copy_spec",
}
AS_DOCUMENTED = ("None", "nested", "too short", "parts of None")
"""No adapter is in between, so that these are enough."""
DOCUMENTED = [symbol for symbol in PLAIN.values() if "." not in symbol]
EXAMPLES = settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)
"""Some properties draw which function they call."""


def returning(function: Any, change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *positional, **named: change(function(*positional, **named))


def plain_subject(function: str, change: Callable[[Any], Any]) -> Subject:
    port = ModuleType("toy_port")
    vars(port).update(vars(numpy_port))
    setattr(port, function, returning(getattr(numpy_port, function), change))
    return adapted(port)


def documented_subject(function: str, change: Callable[[Any], Any]) -> Subject:
    module, ours = ModuleType("toy_module"), load("impl").module
    vars(module).update({name: item for name, item in vars(ours).items() if not name.startswith("__")})
    setattr(module, function, returning(getattr(ours, function), change))
    return Subject("toy_module", module, refuses=False)


def verdicts(subject: Subject, symbol: str) -> Iterator[tuple[str, str, bool]]:
    """Of each property of the documented symbol its id, what it ended with, and whether anything was compared."""
    for tested in load_properties().values():
        context = ExecutionContext(subject, InProcess(subject, "cpu"))
        if symbol in tested.functions and tested.not_applicable(context) is None:
            yield tested.id, ended(tested, context), context.counts.compared > 0


def ended(tested: Property, context: ExecutionContext) -> str:
    try:
        EXAMPLES(tested.test())(context)
    except Falsified:
        return "FALSIFIED"
    except BaseException as error:
        return f"ERROR: {type(error).__name__}: {error}"
    return "passed"


@pytest.mark.parametrize("how", [*WRONG, *LENGTHS])
@pytest.mark.parametrize("function", slow_after(3, PLAIN))
def test_a_plain_result_of_a_wrong_form_is_no_error(function: str, how: str) -> None:
    subject = plain_subject(function, (WRONG | LENGTHS)[how])
    require_verdicts(list(verdicts(subject, PLAIN[function])), how)


@pytest.mark.parametrize("how", AS_DOCUMENTED)
@pytest.mark.parametrize("function", slow_after(1, DOCUMENTED))
def test_a_documented_result_of_a_wrong_form_is_no_error(function: str, how: str) -> None:
    subject = documented_subject(function, (WRONG | LENGTHS)[how])
    require_verdicts(list(verdicts(subject, function)), how)


def require_verdicts(found: list[tuple[str, str, bool]], how: str) -> None:
    assert found
    assert [(name, verdict) for name, verdict, _ in found if verdict.startswith("ERROR")] == []
    assert how != LIES or "FALSIFIED" in [verdict for _, verdict, _ in found]
    if how in WRONG:
        assert [name for name, verdict, compared in found if verdict != "FALSIFIED" and compared] == []
