import pickle
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest

from oracle import batch, chunks, layout, types
from oracle.layout import ByteRun, StateGeometry, Unrepresentable
from oracle.rules import Refused
from oracle.variants import Variants
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh
from tests.oracle.worked import case


def test_a_refusal_reads_as_argument_value_and_rule() -> None:
    with pytest.raises(ValueError, match=r"^chunk_size = 0, but should be >= 1$"):
        chunks.chunk_indices((0, 1), 0)


def test_a_refused_element_names_itself_and_the_element_that_it_contradicts() -> None:
    rule = r"^query_start_loc\[2\] = 3, but should be >= query_start_loc\[1\] = 5$"
    with pytest.raises(Refused, match=rule) as caught:
        chunks.varlen_chunk_metadata((0, 5, 3), 4)
    assert (caught.value.argument, caught.value.value) == ("query_start_loc[2]", 3)
    assert caught.value.args[:2] == ("query_start_loc[2]", 3)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made above
    assert vars(again) == vars(caught.value)


def test_every_oracle_module_imports_with_the_standard_library_alone() -> None:
    paths = sorted((ROOT / "oracle").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    imports = "; ".join(f"import {module.removesuffix('.__init__')}" for module in modules)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {imports}"
    result = run_fresh("-I", "-S", "-c", code)
    assert result.returncode == 0, result.stderr


def test_a_release_may_budget_for_drafts_in_mode_all() -> None:
    assert types.pages_per_request("all", 2, 4, 9, Variants(kept_pages_of_drafts=True)) == 5


UNIFORM = {"require_uniform": True}
STRICT = {"treat_short_extends_as_decodes": False}
F, T = False, True


@pytest.mark.parametrize(
    ("lens", "threshold", "options", "expected"),
    [
        case("decodes", (1, 1, 1), 1, {}, (3, 0, 3, 0)),
        case("padded-decodes", (1, 1, 0), 1, {"num_actual_tokens": 4}, (3, 0, 4, 0)),
        case("decodes-then-prefill", (1, 1, 5), 1, {}, (2, 1, 2, 5)),
        case("prefill-first", (5, 1, 1), 1, {}, (0, 3, 0, 7)),
        case("prefill-between", (1, 5, 1), 1, {}, (1, 2, 1, 6)),
        case("padding-after-prefill", (1, 5, 0, 0), 1, {}, (1, 3, 1, 5)),
        case("empty-row-first", (0, 5), 1, {}, (1, 1, 0, 5)),
        case("up-to-threshold", (3, 2, 1), 3, {}, (3, 0, 6, 0)),
        case("uneven", (3, 2, 1), 3, UNIFORM, (1, 2, 3, 3)),
        case("uniform-but-padding", (3, 3, 0), 3, UNIFORM, (3, 0, 6, 0)),
        case("uniform-single-tokens", (0, 1), 1, UNIFORM, (2, 0, 1, 0)),
        case("uniform-with-prompt-tail", (3, 3), 3, UNIFORM | STRICT | {"is_prefilling": (F, T)}, (1, 1, 3, 3)),
        case("prompt-tail-first", (1, 1), 1, {**STRICT, "is_prefilling": (T, F)}, (0, 2, 0, 2)),
        case("empty-batch", (), 1, {}, (0, 0, 0, 0)),
        case("empty-batch-strict", (), 1, STRICT, (0, 0, 0, 0)),
        case("empty-batch-strict-with-flags", (), 1, {**STRICT, "is_prefilling": ()}, (0, 0, 0, 0)),
        case("empty-batch-uniform", (), 3, UNIFORM, (0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_rows_split_at_the_first_prefill(
    lens: Sequence[int], threshold: int, options: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    starts = tuple(accumulate(lens, initial=0))
    given = {"num_actual_tokens": starts[-1], "max_query_len": max(lens, default=0), **options}
    assert batch.split_decodes_and_prefills(starts, decode_threshold=threshold, **given) == expected


def test_a_copied_run_counts_elements_and_bytes() -> None:
    # Five rows of three channels of two bytes: 30 bytes in a page of 64.
    rows = StateGeometry(num_blocks=4, block_shape=(5, 3), itemsize=2, block_stride_bytes=64)
    run = layout.conv_copy_run(rows, "SD", (0, 2, 1, 3), 1, 3)
    assert (run, run.elements) == (ByteRun(128 + 12, 9 * 2), 9)


@pytest.mark.parametrize("shape", [case("three-channels", (3, 5)), case("one-channel", (1, 5))])
def test_a_shift_of_channel_first_rows_is_unrepresentable(shape: tuple[int, ...]) -> None:
    with pytest.raises(Unrepresentable):
        layout.conv_copy_run(StateGeometry(4, shape, 2, 64), "DS", (0, 2, 1, 3), 1, 2)
