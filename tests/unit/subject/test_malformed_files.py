"""Files of known defects that are no such files: each is refused with the file, the entry, the field, the value and the rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from statecheck.rooms import variables
from statecheck.subject.known import known_in
from tests.helpers.processes import run_fresh

ENTRY = """
[[known]]
id = "x"
title = "It divides wrongly"
properties = ["toys/*"]
versions = ">=0"
link = "https://example.org/1"
why = "seen"

[[known.symptoms]]
kind = "value"
function = "divide"
place = "result"
"""
PORT = """
STATECHECK_PROTOCOL = 2
KNOWN = "known.toml"

def chunk_offsets(cu_seqlens, chunk_size):
    raise NotImplementedError
"""
IN_ENTRY, IN_SYMPTOM = "[{}, entry 'x']", "[{}, entry 'x', symptom 1]"
EMPTY, NAMES = "but should be text that is not empty", "but should be text or a list or None"


def _with(field: str, value: str) -> str:
    """The entry with another value of a field, or with a field that it does not have."""
    changed, times = re.subn(rf"(?m)^{field} = .*$", f"{field} = {value}", ENTRY)
    return changed if times else ENTRY.replace("[[known]]", f"[[known]]\n{field} = {value}")


def _without(field: str) -> str:
    return re.sub(rf"(?m)^{field} = .*\n", "", ENTRY)


TEXTS = {
    "number": ("known = 3", "known = 3, but should be a list [{}]"),
    "numbers": ("known = [3]", "known[0] = 3, but should be a KnownEntry [{}]"),
    "no entry": ("[[known]]", "known[0] fields = ['id', 'link', 'properties', 'symptoms', "),
    "slip": (
        "[[konwn]]\nid = 5",
        "KnownFile fields = ['konwn'], but should be fields of KnownFile, which has ['known', 'unsupported'] [{}]",
    ),
    "syntax": ("\nid = = 5", "text = no TOML, but should be TOML: Invalid value (at line 2, column 6) [{}]"),
    "deep": ("known = " + "[" * 5000, "text = no TOML, but should be TOML: "),
    "id": (_with("id", "5"), "known[0].id = 5, but should be text [{}]"),
    "blank id": (_with("id", '" "'), f"id = ' ', {EMPTY} [{{}}, entry ' ']"),
    "link": (_with("link", '["l"]'), "known[0].link = ['l'], but should be text [{}]"),
    "source": (_with("source", "1"), "known[0].source = 1, but should be text or None [{}]"),
    "why": (_with("why", "2026-01-01"), "known[0].why = datetime.date(2026, 1, 1), but should be text [{}]"),
    "one_in": (_with("one_in", "true"), "known[0].one_in = True, but should be an int or None [{}]"),
    "often": (_with("one_in", "0"), f"one_in = 0, but should be an integer >= 1 {IN_ENTRY}"),
    "none": (_with("properties", "[]"), f"properties = [], {EMPTY} {IN_ENTRY}"),
    "mixed": (_with("properties", '["a", 3]'), "known[0].properties[1] = 3, but should be text [{}]"),
    "versions": (
        _with("versions", '"0.25"'),
        f"versions = '0.25', but should be as in >=0.20,<0.28 {IN_ENTRY}",
    ),
    "blank function": (_with("function", '""'), f"function = '', {EMPTY} {IN_SYMPTOM}"),
    "place": (_with("place", "[]"), f"place = [], {EMPTY} {IN_SYMPTOM}"),
    "function": (_with("function", "{}"), f"known[0].symptoms[0].function = {{{{}}}}, {NAMES} [{{}}]"),
    "condition": (
        ENTRY + "condition = [1]",
        "known[0].symptoms[0].condition = [1], but should be text or None [{}]",
    ),
    "unknown condition": (
        ENTRY + 'condition = "even"',
        f"condition = 'even', but should be one of [] {IN_SYMPTOM}",
    ),
    **{
        f"no {name}": (_without(name), f"{name} = nothing, but should be given {IN_SYMPTOM}")
        for name in ("kind", "function", "place")
    },
    "twice": (ENTRY * 2, "id = 'x', but should be that of one defect, not of 2 [{}"),
    "unknown field": (_with("message", '"x"'), "known[0] fields = ['message'], but should be fields of "),
    "text for a list": (
        _with("properties", '"toys/divide"'),
        "known[0].properties = 'toys/divide', but should be a list",
    ),
    "every property": (
        _with("properties", '["toys/divide", "*"]'),
        "property = '*', but should be a name, of which * is only a part",
    ),
    "unknown kind": (_with("kind", '"bug"'), "kind = 'bug', but should be one of ['fault', "),
    "one of two functions": (
        _with("function", '["divide", "**"]'),
        f"function = '**', but should be a name [Symptom] {IN_SYMPTOM}",
    ),
    # As a case has it. No failure has that place: it is compared without what belongs to one input.
    "attribute of a place": (
        _with("place", '"result.shape"'),
        "place = 'result.shape', but should be 'result', without what belongs",
    ),
    "index of a place": (
        _with("place", '"pool0[3]"'),
        "place = 'pool0[3]', but should be 'pool', without what belongs",
    ),
    "exception": (ENTRY + 'exception = "*"', f"exception = '*', but should be a name [Symptom] {IN_SYMPTOM}"),
    "pattern": (
        _with("place", '"result.*"'),
        f"place = 'result.*', but should be a name without *: only properties have patterns [Symptom] {IN_SYMPTOM}",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_malformed_file_is_refused_with_its_name_and_its_field(tmp_path: Path, name: str) -> None:
    path = tmp_path / "known.toml"
    text, complaint = TEXTS[name]
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{re.escape(complaint.format(path))}"):
        known_in(path, "1.0")


def _no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def _no_file(_: Path) -> None:
    pass


UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (_no_file, "file = No such file or directory, but should be a readable file"),
    "folder": (Path.mkdir, "file = .*, but should be a regular file"),
    "no text": (_no_text, "text = bytes that are no UTF-8, but should be UTF-8"),
    "loop": (lambda path: path.symlink_to(path), "file = Too many levels of symbolic links"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    make, complaint = UNREADABLE[name]
    path = tmp_path / "known.toml"
    make(path)
    with pytest.raises(ValueError, match=f"^{complaint}.*{re.escape(str(path))}"):
        known_in(path, "1.0")


def test_a_port_whose_file_is_no_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from subjects import load

    (tmp_path / "no_path_port.py").write_text(PORT.replace('"known.toml"', "3"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=r"^KNOWN = 3, but should be the path of a file \[no_path_port\]$"):
        load("no_path_port")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("-m", "statecheck", "fuzz", "--budget", "1s"), 3),
        (("-m", "pytest", "-p", "statecheck.suite.options", "-p", "no:cacheprovider"), 4),
    ],
    ids=["fuzz", "pytest"],
)
@pytest.mark.slow
def test_a_command_ends_before_it_begins_where_the_file_is_malformed(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    (tmp_path / "malformed_port.py").write_text(PORT, encoding="utf-8")
    (tmp_path / "known.toml").write_text(TEXTS["link"][0], encoding="utf-8")
    arguments += ("--subject", "malformed_port", "--device", "cpu")
    run = run_fresh(*arguments, cwd=tmp_path, env=variables([str(tmp_path)]))
    complaint = TEXTS["link"][1].format(tmp_path / "known.toml")
    assert (run.returncode, complaint in run.stderr, "Traceback" in run.stderr) == (code, True, False), (
        run.stderr
    )
