"""What is mutated and what is not, and which mutants are left out as equivalent."""

from __future__ import annotations

import pytest

from lab.mutants.equivalent import same_bytecode
from lab.mutants.mutant import IMPORT, Source, difference
from lab.mutants.operators import mutants_of

KERNEL = "@triton.jit\ndef kernel(p, n):\n    "


def mutated(text: str) -> set[tuple[str, str]]:
    """Operator and changed line of all mutants of a text."""
    source = Source(text.encode())
    found = set()
    for mutant in mutants_of("toy.py", text.encode()):
        after = source.changed(mutant.edit).decode().splitlines()
        assert len(after) == len(source.lines)
        found.add((mutant.operator, after[mutant.line - 1].strip()))
    return found


@pytest.mark.parametrize(
    ("text", "operator", "changed"),
    [
        ("x = a < b", "comparison", {"x = a <= b", "x = a >= b"}),
        ("x = a is not b", "comparison", {"x = a is b"}),
        ("x = a not in b", "comparison", {"x = a in b"}),
        ("x = mode == 'all'", "constant", {"x = mode == 'all?'"}),
        ("x = f(0)", "constant", {"x = f(1)"}),
        ("x = f(3)", "constant", {"x = f(2)", "x = f(4)"}),
        ("x = f(True)", "constant", {"x = f(False)"}),
        ("x = a - b", "operand", {"x = (a)", "x = (b)"}),
        ("x = -a", "operand", {"x = (a)"}),
        ("x = a and b", "operand", {"x = True and b", "x = a and True"}),
        ("x = a or b", "boolean", {"x = a and b"}),
        ("x = not a", "boolean", {"x = (a)"}),
        ("x = b if a else c", "boolean", {"x = b if (not (a)) else c"}),
        ("x = [a for a in b if c]", "boolean", {"x = [a for a in b if True]"}),
        ("x = (a) // b", "arithmetic", {"x = (a) * b"}),
        ("x += a", "arithmetic", {"x -= a"}),
        ("x = min(a, b)", "arithmetic", {"x = max(a, b)"}),
        ("x = f(a, b)", "argument order", {"x = f(b, a)"}),
        ("f(a)", "statement", {"pass"}),
        ("def f(x):\n    x.y = 1", "statement", {"pass"}),
        ("def f(x):\n    return x", "statement", set()),
        ("def f(x):\n    if x: return 1\n    return 2", "statement", {"if x: pass"}),
        ("x = torch.int64", "type", {"x = torch.int32"}),
        ("x = a[i:]", "off by one", {"x = a[(i) + 1:]", "x = a[(i) - 1:]"}),
        (f"{KERNEL}tl.store(p, n)", "store", {"pass"}),
        (f"{KERNEL}tl.debug_barrier()", "barrier", {"pass"}),
        (f"{KERNEL}x = tl.load(p, mask=n, other=0)", "mask", {"x = tl.load(p)"}),
        (f"{KERNEL}x = n.to(tl.int64)", "type", {"x = (n)", "x = n.to(tl.int32)"}),
        (
            f"{KERNEL}x = tl.atomic_add(p, n) == 1",
            "atomic",
            {
                'x = tl.atomic_add(p, n, sem="relaxed") == 1',
                "plain_ = tl.load(p); tl.store(p, plain_ + n); x = plain_ == 1",
            },
        ),
    ],
)
def test_an_operator_makes_these_changes_and_no_others(text: str, operator: str, changed: set[str]) -> None:
    assert {line for made, line in mutated(text) if made == operator} == changed


@pytest.mark.parametrize(
    "text",
    [
        '"""A text of 3 words."""',
        "def f(x: Literal[3]) -> Literal[4]: ...",
        "x: Annotated[int, 3]",
        "__all__ = ['a', 'b'][:2]",
        "if TYPE_CHECKING:\n    x = 1",
        "T = TypeVar('T', bound=f(1))",
        "Rows = tuple[int | None, 3]",
        "Pool = bytes | dict[int, int]",
        "_Marks: TypeAlias = npt.NDArray[np.int64]",
        "x = zip(a, b, strict=True)",
        "assert x > 1",
        "x = f'{3}'",
    ],
)
def test_what_no_caller_relies_on_is_not_changed(text: str) -> None:
    assert mutated(text) == set()


def test_what_looks_like_an_alias_and_is_a_value_is_changed() -> None:
    assert {line for _, line in mutated("ROWS = a[1]\nrow = b[1]")} == {
        f"{name}[{index}]" for name in ("ROWS = a", "row = b") for index in (0, 2)
    }


def test_messages_of_errors_are_not_changed_but_the_error_may_be_left_out() -> None:
    assert mutated("def f(x):\n    raise ValueError(x + 1)") == {("statement", "pass")}
    assert mutated("def f(x):\n    refuse('x', x + 1, 'more')") == {("statement", "pass")}
    changed = {
        ("statement", "pass"),
        ("comparison", "require(x >= y, 'x', x + 1)"),
        ("comparison", "require(x <= y, 'x', x + 1)"),
    }
    assert mutated("def f(x):\n    require(x > y, 'x', x + 1)") == changed


def test_a_mutant_keeps_its_identity_when_other_lines_change() -> None:
    before = "def f(x):\n    return x < 1"
    after = "y = f(3)\n\ndef f(x):\n    z(x)\n    return x < 1"
    ids = {mutant.id for mutant in mutants_of("toy.py", before.encode())}
    assert ids <= {mutant.id for mutant in mutants_of("toy.py", after.encode())}


def test_equal_lines_of_a_function_have_mutants_of_their_own() -> None:
    mutants = mutants_of("toy.py", b"def f(x):\n    x.a(1)\n    x.a(1)")
    assert len({mutant.id for mutant in mutants}) == len(mutants) == 6


def test_a_statement_of_several_lines_keeps_the_numbers_of_the_others() -> None:
    text = "def f(x):\n    return (not (x\n        and y\n    )) or z"
    assert all(line for _, line in mutated(text))


def test_lines_are_those_of_the_statement_of_the_kernel_or_of_the_import() -> None:
    spans = {
        mutant.edit.lines
        for mutant in mutants_of(
            "toy.py", f"x = f(1)\ndef f(x=2):\n    if x:\n        y(x)\n{KERNEL}y(n)".encode()
        )
    }
    assert spans == {IMPORT, (3, 3), (4, 4), (6, 7)}


def test_the_difference_shows_the_changed_line() -> None:
    text = b"x = 1\ny = a < b"
    assert difference(Source(text), mutants_of("toy.py", text)[-1]) == "-y = a < b\n+y = a >= b"


def test_the_same_bytecode_is_equivalent_wherever_its_lines_stand() -> None:
    assert same_bytecode(b"def f(x):\n    return x + (1 + 2)", b"\n\ndef f(x): return x + (2 + 1)")
    assert not same_bytecode(b"def f(x): return x + 1", b"def f(x): return x + True")
    assert not same_bytecode(b"def f(x=1): return x", b"def f(x=2): return x")
