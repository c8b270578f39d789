"""Values, their JSON, and the words for where two of them differ."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statecheck.case import SCHEMA, Case, Failure, values
from statecheck.case.case import TAGS, decode, encode
from statecheck.case.failure import KINDS as KINDS_OF_FAILURE
from statecheck.case.failure import Difference, brief, difference, outcome_difference
from statecheck.case.values import (
    Address,
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Expected,
    Fake,
    Function,
    Let,
    Name,
    NumPy,
    Outcome,
    Overwrite,
    Raised,
    Record,
    Refusal,
    Returned,
    Rows,
    SameAs,
    Tensor,
    Value,
    View,
    boolean,
    call,
    int32,
    int64,
    record,
    resolve,
)
from tests.helpers.cases import a_case

names = st.text(max_size=6)
integers = st.integers(-(2**70), 2**70)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: names,
    int: integers,
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    bytes: st.binary(max_size=6),
    type(None): st.none(),
}


def built(kind: type, inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Any]:
    """Objects of a dataclass of `values`, its fields drawn by their annotations."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: drawn(hints[field.name], inner) for field in fields(kind)})


def drawn(hint: Any, inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Any]:
    if hint is Any:
        return inner
    if hint in SCALARS:
        return SCALARS[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    kinds = get_args(hint)
    if get_origin(hint) is not tuple:
        return st.one_of([drawn(kind, inner) for kind in kinds])
    if kinds[-1] is ...:
        return st.lists(drawn(kinds[0], inner), max_size=3).map(tuple)
    return st.tuples(*(drawn(kind, inner) for kind in kinds))


def trees_of(leaf: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    """Nested containers and records of `leaf`; the fields of a record have different names."""
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(names | integers | st.booleans(), inner, max_size=3)
            | st.builds(lambda kind, named: record(kind, **named), names, st.dictionaries(names, inner))
        ),
        max_leaves=6,
    )


scalars = st.one_of(list(SCALARS.values()))
LEAVES = (
    Tensor,
    DType,
    Device,
    Name,
    SameAs,
    Address,
    View,
    Fake,
    Function,
    BufferMaker,
    Rows,
    NumPy,
    Attribute,
)
trees = trees_of(scalars | st.sampled_from(LEAVES).flatmap(lambda kind: built(kind, scalars)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps = draw(
        st.lists(st.sampled_from((Call, Let, Overwrite)).flatmap(lambda kind: built(kind, trees)), max_size=4)
    )
    many = sum(isinstance(step, Call) for step in steps)
    return Case(
        property_id=draw(names),
        sentence=draw(names),
        subject=draw(names),
        steps=tuple(steps),
        expected=tuple(draw(drawn(Expected, trees)) for _ in range(many)),
        actual=tuple(draw(drawn(Outcome, trees)) for _ in range(many)),
        failure=draw(st.none() | st.builds(Failure, st.sampled_from(sorted(KINDS_OF_FAILURE)), names, names)),
        device=draw(names),
        seed=draw(st.none() | integers),
    )


def same(value: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down, which 1 == True and dict order leave open."""
    return value == other and repr(value) == repr(other)


KINDS = sorted(
    (kind for kind in TAGS.values() if kind.__module__ == values.__name__), key=lambda kind: kind.__name__
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=20)
def test_every_kind_of_value_comes_back_from_json_as_it_was(kind: type, data: st.DataObject) -> None:
    value = data.draw(built(kind, trees))
    assert same(decode(json.loads(json.dumps(encode(value)))), value)


@given(value=trees)
def test_every_tree_of_values_comes_back_from_json_as_it_was(value: Value) -> None:
    assert same(decode(json.loads(json.dumps(encode(value)))), value)


@given(case=cases())
@settings(max_examples=40)
def test_every_case_comes_back_from_json_as_it_was(case: Case) -> None:
    saved = json.loads(case.to_json())
    fields = {name: decode(saved[name]) for name in Case.__dataclass_fields__}
    assert same(Case(**fields), case)


def test_a_pool_of_transposed_states_is_one_piece_of_memory() -> None:
    pool = Tensor("float32", (524_290, 1, 64, 64), None, (4096, 4096, 1, 64))
    case = a_case(steps=(call("divide", x=pool),))
    assert Case.from_json(case.to_json()).steps == case.steps


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, bytearray(b"1"), 1j, [object()], Case], ids=lambda value: type(value).__name__
)
def test_objects_that_are_no_plain_data_are_not_encoded(value: Any) -> None:
    with pytest.raises(ValueError, match="but should be plain data"):
        encode(value)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"Popen": {"args": "true"}},
        {"os.system": "true"},
        {"Call": {"function": "f", "arguments": {"tuple": []}}, "Let": {}},
        {"Tensor": {"dtype": "int32", "shape": {"tuple": []}, "elements": None, "hook": 1}},
        {"Tensor": {"dtype": "int32"}},
        {"Tensor": []},
        {"Tensor": None},
        {"tuple": 5},
        {"tuple": "ab"},
        {"bytes": 5},
        {"bytes": "0g"},
        {"dict": 5},
        {"dict": [5]},
        {"dict": [["key"]]},
        {"dict": [[["a", "list"], 1]]},
        [{"unknown": {}}],
    ],
    ids=json.dumps,
)
def test_json_that_no_value_has_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"but should|unpack|hexadecimal"):
        decode(data)


def changed(**changes: Any) -> str:
    content = {"schema": SCHEMA, **json.loads(a_case().to_json())} | changes
    return json.dumps({name: item for name, item in content.items() if item is not ...})


@pytest.mark.parametrize("field", ["steps", "expected", "sentence"])
def test_a_case_with_a_missing_field_is_refused_by_its_name(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Case.from_json(changed(**{field: ...}))


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": None},
        {"steps": []},
        {"steps": {"tuple": [5]}},
        {"steps": {"tuple": []}},
        {"expected": {"tuple": []}},
        {"expected": {"tuple": [{"Raised": {"exception": "E", "message": ""}}]}},
        {"actual": {"tuple": [{"Refusal": {"argument": "x"}}]}},
    ],
    ids=json.dumps,
)
def test_a_case_whose_steps_and_outcomes_do_not_match_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="but should be"):
        Case.from_json(changed(**changes))


GAPS = Tensor("int32", (2, 2), (9, 1, 9, 2, 9, 3, 9, 4), strides=(4, 2), offset=1)


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        (int32([1, 2, 3]), 3),
        (GAPS, 8),
        (Tensor("int8", (3, 2), None), 6),
        (Tensor("int8", (3, 2), None, strides=(100, 1)), 202),
        (Tensor("int8", (3, 2), None, strides=(100, 1), offset=5), 207),
        (Tensor("int8", (0, 2), None), 0),
        (Tensor("int8", (), None), 1),
    ],
    ids=repr,
)
def test_a_storage_is_as_large_as_the_last_element_of_the_view_needs(tensor: Tensor, size: int) -> None:
    assert tensor.storage_size == size


POOL = Tensor("uint8", (2, 2), b"abcd", strides=(1, 2))


def test_bytes_are_read_as_the_elements_that_they_are() -> None:
    assert (POOL.storage_size, POOL.values(), POOL.rows()) == (4, (97, 99, 98, 100), ((97, 99), (98, 100)))
    assert Tensor("uint8", (4,), b"abcd").dense().elements == b"abcd"


@pytest.mark.parametrize(
    ("tensor", "storage"),
    [
        (POOL, Tensor("uint8", (4,), b"abcd")),
        (Tensor("uint8", (2,), (1, 2)), Tensor("uint8", (2,), b"\x01\x02")),
        (GAPS, int32([9, 1, 9, 2, 9, 3, 9, 4])),
        (int32([[1, 2], [3, 4]]).on_host(), int32([1, 2, 3, 4]).on_host()),
    ],
    ids=brief,
)
def test_a_storage_is_described_as_a_vector_and_bytes_as_bytes(tensor: Tensor, storage: Tensor) -> None:
    assert same(tensor.storage(), storage)


def test_the_values_of_a_tensor_without_contents_are_not_made_up() -> None:
    with pytest.raises(ValueError, match="elements = None"):
        Tensor("int8", (2,), None).values()


@pytest.mark.parametrize(
    ("value", "contents", "resolved"),
    [
        ([record("R", f=(Name("a"), {"key": Name("b")}))], {}, [record("R", f=(1, {"key": 1}))]),
        ((Rows(Name("a")), NumPy(Name("a")), View("a", "int8", (1,))), {}, (Rows(1), NumPy(1), View("a", "int8", (1,)))),
        (Attribute(Name("a"), "x.y"), {}, Attribute(1, "x.y")),
        ([Attribute(Name("a"), "x.y"), Attribute(Name("a"), "x")], {"a.x.y": 7, "x": 8}, [7, Attribute(1, "x")]),
    ],
)  # fmt: skip
def test_names_and_attributes_are_resolved_inside_everything(
    value: Value, contents: dict[str, Value], resolved: Value
) -> None:
    assert resolve(value, {"a": 1, "b": Name("a")}, contents) == resolved


MATRIX = int32([[1, 2, 3], [4, 5, 6]])
BYTES = Tensor("uint8", (3,), b"\x01\x02\x03")


def damaged(before: bytes, after: bytes) -> Record:
    return record("Damaged", before=before, inside=BYTES, after=after)


BATCH = record("Batch", rows=2, lens=int32([1, 2]))


@pytest.mark.parametrize(
    ("expected", "actual", "place", "observed", "wanted"),
    [
        (int32([1, 2, 3]), int32([1, 7, 8]), "result[1]", "7", "2"),
        (MATRIX, int32([[1, 2, 3], [4, 0, 0]]), "result[1, 1]", "0", "5"),
        (int32([1]), int64([1]), "result.dtype", "int64", "int32"),
        (int32([1, 2]), int32([1]), "result.shape", "(1,)", "(2,)"),
        (MATRIX, int32([1, 2, 3, 4, 5, 6]), "result.shape", "(6,)", "(2, 3)"),
        (int32([1]), 1, "result", "1", "int32[1]"),
        (int32([1]), SameAs("x"), "result", "x itself", "int32[1]"),
        (SameAs("x"), SameAs("y"), "result", "y itself", "x itself"),
        (SameAs("x"), int32([1]), "result", "int32[1]", "x itself"),
        (Address("x", 4), Address("x", 8), "result", "the address of x + 8 bytes", None),
        (Address("x", 4), 12345, "result", "12345", None),
        ((1, 2), [1, 2], "result", "[1, 2]", "(1, 2)"),
        ([1, 2], (1, 2), "result", "(1, 2)", "[1, 2]"),
        ((1, 2), (1, 3), "result[1]", "3", "2"),
        ((1, 2), (1, 2, 3), "len(result)", "3", "2"),
        (1, True, "result", "True", "1"),
        (False, 0, "result", "0", "False"),
        (None, 0, "result", "0", "None"),
        (4, 4.0, "result", "4.0", "4"),
        ({"a": 1}, {"a": 2}, "result['a']", "2", "1"),
        ({"a": 1, "b": 2}, {"a": 1}, "result keys", "['a']", "['a', 'b']"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "result keys", "['b', 'a']", "['a', 'b']"),
        (({8: {"nums": (0, 1)}},), ({8: {"nums": (0, 2)}},), "result[0][8]['nums'][1]", "2", "1"),
        (BATCH, record("Batch", rows=2), "result.lens", "missing", "int32[1, 2]"),
        (BATCH, record("Batch", lens=int32([1, 3]), rows=2), "result.lens[1]", "3", "2"),
        (BATCH, record("Table", rows=2, lens=int32([1, 2])), "type(result)", "Table", "Batch"),
        (BYTES, Tensor("uint8", (3,), b"\x01\x12\x03"), "result[1]", "0x12", "0x02"),
        (BYTES, Tensor("uint8", (3,), (1, 18, 3)), "result[1]", "0x12", "0x02"),
        (BYTES, damaged(b"\xa5\x00", b"\xa5\xa5"), "byte 1 before result", "0x00", "0xa5"),
        (BYTES, damaged(b"\x00\xa5\xa5", b"\xa5\x07\x00"), "byte 2 behind result", "0x07", "0xa5"),
        (record("Missing"), BYTES, "result", "uint8[3] 01 02 03", "Missing()"),
    ],
    ids=brief,
)
def test_the_first_difference_is_named(
    expected: Value, actual: Value, place: str, observed: str, wanted: str | None
) -> None:
    found = difference(expected, actual, "result", places=True)
    assert found is not None
    wanted = brief(expected) if wanted is None else wanted
    assert (found.place, found.observed, found.expected) == (place, observed, wanted)


@given(value=trees_of(scalars | st.lists(integers).map(int64)))
def test_nothing_differs_from_itself(value: Value) -> None:
    assert difference(value, decode(encode(value)), "result", places=True) is None


def test_the_tensors_that_differ_are_kept() -> None:
    other = int32([[1, 2, 3], [4, 5, 7]])
    found = difference((0, MATRIX), (0, other), "result", places=True)
    assert found == Difference("result[1][1, 2]", "7", "6", (MATRIX, other), tensor="result[1]", index=(1, 2))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [(int32([[1, 2], [3, 4]]), GAPS), (record("R", a=1), record("R", b=2, a=1))],
    ids=["through strides", "fields that are not expected"],
)
def test_identity_and_place_without_a_rule_are_no_difference(expected: Value, actual: Value) -> None:
    assert difference(expected, actual, "result", places=True) is None


@pytest.mark.parametrize(("tell", "place"), [(True, "result.device"), (False, None)])
def test_the_place_of_a_tensor_matters_where_it_is_known(tell: bool, place: str | None) -> None:
    found = difference(int32([1]), int32([1]).on_host(), "result", places=tell)
    assert (found and found.place) == place


def raised(message: str, exception: str = "ValueError") -> Raised:
    return Raised(exception, message)


@pytest.mark.parametrize(
    ("argument", "message", "named"),
    [
        ("x", "x = 0, but should be > 0", True),
        ("x", "but should be above x", True),
        ("x", "max = 0, but should be > 0", False),
        ("x", "x_max = 0", False),
        ("x", "", False),
        ("lens[1]", "lens[1] = -1, but should be >= 0", True),
        ("lens[1]", "lens[11] = -1, but should be >= 0", False),
        ("lens[1]", "seq_lens[1] = -1", False),
        ("lens", "lens[1] = -1, but should be >= 0", True),
        ("", "anything", True),
    ],
)
def test_a_refusal_has_to_name_the_argument_as_a_whole_word(argument: str, message: str, named: bool) -> None:
    assert (outcome_difference(Refusal(argument), raised(message), places=True) is None) is named


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (Refusal("x"), raised("x = 0", "AssertionError")),
        (Refusal("", "NotImplementedError"), raised("x = 0")),
        (Refusal("x"), Returned(0)),
        (Returned(0), raised("x = 0")),
        (Returned(0), Returned(1)),
        (Returned(0), Returned(0, changed=("x",))),
        (Refusal("x"), Raised("ValueError", "x = 0", changed=("x",))),
        (Returned(0, after=(("a", 1),)), Returned(0, after=(("a", 2),))),
        (Refusal("x", after=(("a", 1),)), Raised("ValueError", "x = 0", after=(("a", 2),))),
    ],
    ids=repr,
)
def test_another_outcome_than_the_expected_one_is_a_difference(expected: Expected, actual: Outcome) -> None:
    assert outcome_difference(expected, actual, places=True) is not None


@pytest.mark.parametrize(
    ("expected", "actual", "place"),
    [
        ((("a", 1), ("b", 2)), (("b", 3), ("a", 4)), "b"),
        ((("a", 1),), (("b", 3), ("a", 1)), None),
        ((("a", 1), ("not observed", 5)), (("a", 1),), None),
        ((("a", int32([1, 2])),), (("a", int32([1, 3])),), "a[1]"),
    ],
    ids=["first observed", "unknown", "more than observed", "element"],
)
def test_observed_contents_are_compared_as_far_as_they_are_known(
    expected: Any, actual: Any, place: str | None
) -> None:
    found = outcome_difference(Returned(0, after=expected), Returned(0, after=actual), places=True)
    assert (found and found.place) == place


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (Returned(1, after=(("a", 2),)), "result = 1, but should be 0"),
        (Returned(0, changed=("x", "b.lens")), "x, b.lens = written to, but should be left as it was"),
    ],
)
def test_the_first_difference_of_an_outcome_is_a_sentence(actual: Outcome, words: str) -> None:
    found = outcome_difference(Returned(0, after=(("a", 1),)), actual, places=True)
    assert str(found).startswith(words)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (int32([0, 5]), "int32[0, 5]"),
        (boolean([True, False]), "bool[1, 0]"),
        (int64([[1, 2], [3, 4]]), "int64[[1, 2], [3, 4]]"),
        (int32(range(100)), "int32[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... 100 in all ..., 98, 99]"),
        (Tensor("float32", (9, 3), None), "float32[9, 3] with any contents"),
        ((1,), "(1,)"),
        ({"a": [True, None]}, "{'a': [True, None]}"),
        (record("R", a=1), "R(a=1)"),
        (BYTES, "uint8[3] 01 02 03"),
        (Tensor("uint8", (50,), bytes(50)), f"uint8[50] {'00 ' * 22}... 00 00"),
        (View("pool0", "int8", (2, 3)), "<int8[2, 3] in pool0>"),
        (Fake("int8", (2,), None, 2**63), "<int8[2] at 0x8000000000000000>"),
        (Rows(int32([1])), "<rows of int32[1]>"),
        (NumPy(int32([1])), "<numpy of int32[1]>"),
        (Attribute(call("C.create", bind="ctx"), "out.gpu"), "<ctx>.out.gpu"),
        (call("C.initialize", self=0, updates="ctx"), "<ctx>"),
        (Function("get_conv_copy_spec"), "get_conv_copy_spec"),
    ],
)
def test_values_are_written_in_a_line(value: Value, words: str) -> None:
    assert brief(value) == words


def test_a_law_that_is_broken_is_said_in_its_sentence_alone() -> None:
    expected = Record("Step", (("broken", Record("Laws", (("read", "nothing"), ("free", "nothing")))),))
    read = "r0 reads block 3, but should read block 2"
    broken = Record("Step", (("broken", Record("Laws", (("read", read), ("free", "nothing")))),))
    found = difference(expected, broken, "result", places=False)
    assert found is not None
    assert (str(found), found.place) == (read, "result.broken.read")
    raised = outcome_difference(Returned(expected), Raised("ValueError", "no block"), places=False)
    assert str(raised) == "the call = ValueError: no block, but should be a result in which nothing is wrong"


FAR = Tensor("int8", (2**25, 3), None, strides=(64, 1))


def test_a_view_in_as_many_pieces_as_blocks_are_drawn_is_read_back() -> None:
    case = replace(a_case(), steps=(Let("pool", FAR), *a_case().steps))
    assert Case.from_json(case.to_json()).steps[0] == case.steps[0]


def test_the_pieces_of_such_a_view_are_not_listed() -> None:
    with pytest.raises(
        ValueError, match="should be in at most 1048576 pieces of memory where all are compared"
    ):
        FAR.runs()
