"""Conformance vectors: the same files every time, right as the implementation and a checker in JavaScript see it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statecheck.cli.main import main
from statecheck.execution.port import InProcess
from statecheck.execution.ports import ordinary_port
from statecheck.vectors.choose import Recording
from statecheck.vectors.record import recordable, recorded
from statecheck.vectors.topics import FUNCTIONS, TOPICS
from statecheck.vectors.write import FOLDER, Origin, write
from subjects import load as load_subject
from tests.processes import made_once, session_folder
from tests.vectors.load import load
from tests.vectors.replay import difference

EXAMPLES = 6
SOME = "chunks or boundary or divi or overlap"
NOT_PORTED = {"cleanup_mamba_state_idx", "postprocess_mamba_all", *TOPICS["builders"]}
"""Functions of which the port to JavaScript has none."""
LAUNCHED = {"preprocess_mamba_align_fused_kernel", *TOPICS["copies"]}
"""Functions of which the ports to JavaScript alone check the vectors."""
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node.js is not installed, which runs vectors/check.js")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by the first process of the session that needs it."""
    folder = session_folder(tmp_path_factory) / "vectors"
    with made_once(folder) as is_first:
        if is_first:
            write_corpus(folder)
    return folder


def write_corpus(folder: Path) -> None:
    recording = Recording()
    recorded(recordable(FUNCTIONS), recording.note, seed=0, examples=EXAMPLES)
    write(recording.chosen(), folder, Origin(0, EXAMPLES))


@pytest.fixture
def mutable(corpus: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(corpus, tmp_path / "corpus"))


@pytest.fixture(scope="module")
def port() -> InProcess:
    made = ordinary_port(load_subject("impl"), "cpu")
    assert isinstance(made, InProcess)
    return made


def topic_of(folder: Path, topic: str) -> Any:
    return json.loads((folder / f"{topic}.json").read_text(encoding="utf-8"))


def rewrite(folder: Path, topic: str, change: Callable[[list[Any]], None]) -> None:
    data = topic_of(folder, topic)
    change(data["vectors"])
    (folder / f"{topic}.json").write_text(json.dumps(data), encoding="utf-8")


# Files.


def exported(folder: Path, seed: str, *options: str) -> subprocess.Popen[bytes]:
    """A process of its own that exports, with hashes of its own."""
    command = [
        sys.executable,
        "-m",
        "properties",
        "vectors",
        "--out",
        str(folder),
        "--examples",
        "6",
        *options,
    ]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    return subprocess.Popen(command, cwd=FOLDER.parent, env=environment, stdout=subprocess.DEVNULL)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_the_same_seed_makes_the_same_files_byte_for_byte(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    running = [exported(folder, str(n), "--only", SOME) for n, folder in enumerate((one, two), 1)]
    assert [process.wait() for process in running] == [0, 0]
    assert contents(one) == contents(two)
    assert {"copies.npz", "copies.json", "chunks.json", "index.json"} <= contents(one).keys()


def test_another_seed_makes_other_vectors(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        assert main(["vectors", "--out", str(tmp_path / seed), "--only", "division", "--seed", seed]) == 0
    assert {one["id"] for one in load(tmp_path / "1")} != {one["id"] for one in load(tmp_path / "2")}


@pytest.mark.slow
def test_every_function_has_vectors_and_every_vector_a_name_of_its_own(corpus: Path) -> None:
    vectors = load(corpus)
    assert {one["function"] for one in vectors} == {name.removesuffix(".fget") for name in FUNCTIONS}
    assert len({one["id"] for one in vectors}) == len(vectors)


def test_the_index_counts_what_the_files_hold(corpus: Path) -> None:
    index = json.loads((corpus / "index.json").read_text(encoding="utf-8"))
    counted = {name: count for one in index["files"] for name, count in one["functions"].items()}
    functions = [one["function"] for one in load(corpus)]
    assert counted == {name: functions.count(name) for name in functions}
    assert index["vectors"] == len(functions)


def references(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict) and "key" in data:
        yield data
    elif isinstance(data, (dict, list)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from references(item)


@pytest.mark.parametrize("topic", ["chunks", "copies"])
def test_an_offset_leads_to_the_elements_without_a_reader_of_archives(corpus: Path, topic: str) -> None:
    found = list(references(topic_of(corpus, topic)))
    raw, archive = (corpus / f"{topic}.npz").read_bytes(), np.load(corpus / f"{topic}.npz")
    wanted = [archive[one["key"]].tobytes() for one in found]
    assert [raw[one["offset"] :][: len(want)] for one, want in zip(found, wanted, strict=True)] == wanted
    assert found


def test_a_corpus_of_another_version_is_not_read(mutable: Path) -> None:
    (mutable / "index.json").write_text('{"schema": 2}', encoding="utf-8")
    with pytest.raises(ValueError, match="schema = 2, but should be 1"):
        load(mutable)


def test_no_example_at_all_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectors", "--out", str(tmp_path), "--examples", "0"]) == 3
    assert "examples = 0, but should be >= 1" in capsys.readouterr().err


# The schema.


def complaints(data: Any) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra dev)")
    schema = json.loads((FOLDER / "schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(data)]


@pytest.mark.parametrize("topic", ["index", *TOPICS])
def test_every_file_follows_the_schema(corpus: Path, topic: str) -> None:
    assert complaints(topic_of(corpus, topic)) == []


def without_id(vectors: list[Any]) -> None:
    del vectors[0]["id"]


def with_two_expectations(vectors: list[Any]) -> None:
    vectors[0]["expected"] = {"result": 1, "refused": {"argument": "x", "exception": "ValueError"}}


def with_a_tensor_of_nothing(vectors: list[Any]) -> None:
    vectors[0]["arguments"]["query_start_loc"] = {"dtype": "int32", "shape": [3]}


def with_an_inexact_integer(vectors: list[Any]) -> None:
    vectors[0]["arguments"]["chunk_size"] = 2**60


@pytest.mark.parametrize(
    "change", [without_id, with_two_expectations, with_a_tensor_of_nothing, with_an_inexact_integer]
)
def test_the_schema_refuses_what_the_format_does_not_have(
    mutable: Path, change: Callable[[list[Any]], None]
) -> None:
    rewrite(mutable, "chunks", change)
    assert complaints(topic_of(mutable, "chunks")) != []


# The implementation.


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "copies"])
def test_the_implementation_agrees_with_every_vector(corpus: Path, port: InProcess, topic: str) -> None:
    names = {name.removesuffix(".fget") for name in TOPICS[topic] if name not in LAUNCHED}
    vectors = [one for one in load(corpus) if one["function"] in names]
    assert [message for one in vectors if (message := difference(port, one))] == []


def changed(data: Any) -> Any:
    """The data with one number, byte or word in it changed."""
    if isinstance(data, bytes):
        return bytes([data[0] ^ 1]) + data[1:]
    if isinstance(data, dict):
        name = next((name for name in reversed(data) if data[name] not in ([], {})), "none")
        return {**data, name: changed(data.get(name))}
    if isinstance(data, list):
        return [changed(data[0]), *data[1:]]
    return f"not {data}" if isinstance(data, str) else not data if isinstance(data, bool) else (data or 0) + 1


@pytest.mark.parametrize(
    "function", sorted(name.removesuffix(".fget") for name in FUNCTIONS.keys() - LAUNCHED)
)
def test_a_vector_that_expects_something_else_is_noticed(
    corpus: Path, port: InProcess, function: str
) -> None:
    own = [one for one in load(corpus) if one["function"] == function]
    wrong = [{**one, "expected": changed(one["expected"])} for one in own[:3]]
    assert [one["id"] for one in wrong if not difference(port, one)] == []
    assert wrong


# The checker in another language.


def checked(folder: Path, *ports: Path) -> tuple[int, list[str]]:
    """The exit code of the checker, and what it prints."""
    assert NODE is not None
    command = [NODE, str(folder / "check.js"), str(folder), *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, (done.stdout + done.stderr).splitlines()


@needs_node
def test_the_checker_in_another_language_passes_all_that_it_has_rules_for(corpus: Path) -> None:
    code, lines = checked(corpus)
    count = sum(one["function"] not in NOT_PORTED for one in load(corpus))
    assert (code, lines[-1]) == (0, f"{count} of {count} pass")
    assert {line.rpartition(" of ")[2] for line in lines[:-1]} == NOT_PORTED


def written_only(folder: Path) -> dict[str, Any]:
    """A reference to bytes that are expected, and are no input."""
    vectors = topic_of(folder, "copies")["vectors"]
    given = {one["key"] for vector in vectors for one in references(vector["arguments"])}
    expected = (one for vector in vectors for one in references(vector["expected"]))
    return next(one for one in expected if one["key"] not in given)


@needs_node
def test_the_checker_notices_a_single_byte(mutable: Path) -> None:
    raw, one = bytearray((mutable / "copies.npz").read_bytes()), written_only(mutable)
    raw[one["offset"] + one["shape"][0] - 1] ^= 128
    (mutable / "copies.npz").write_bytes(raw)
    code, lines = checked(mutable)
    assert code == 1
    assert any(f"bytes.data.{one['shape'][0] - 1} = " in line for line in lines)


def expecting(kind: str, content: Any) -> Callable[[list[Any]], None]:
    """The first vector that expects something of a kind expects something else."""

    def change(vectors: list[Any]) -> None:
        next(one for one in vectors if kind in one["expected"])["expected"] = content

    return change


PORTED = ("arithmetic", "chunks", "batch", "shapes", "layout")


@needs_node
@pytest.mark.parametrize("kind", ["result", "refused"])
@pytest.mark.parametrize(
    "content", [{"result": 12345}, {"refused": {"argument": "nowhere", "exception": "ValueError"}}]
)
def test_the_checker_notices_another_expectation(mutable: Path, kind: str, content: Any) -> None:
    for topic in PORTED:
        rewrite(mutable, topic, expecting(kind, content))
    code, lines = checked(mutable)
    messages = [line for line in lines if "but should be" in line or "Error: " in line]
    assert (code, len(messages)) == (1, len(PORTED))


@needs_node
def test_what_a_port_does_not_have_is_counted_and_never_passed(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing.js").write_text("module.exports = {};", encoding="utf-8")
    code, lines = checked(corpus, tmp_path / "nothing.js")
    assert (code, lines[-1]) == (1, "0 of 0 pass")
    assert sum(int(line.split()[2]) for line in lines[:-1]) == len(load(corpus))


@needs_node
@pytest.mark.parametrize("index", ["schema", "vectors"])
def test_the_checker_reads_no_other_version_and_no_part_of_a_corpus(mutable: Path, index: str) -> None:
    data = json.loads((mutable / "index.json").read_text(encoding="utf-8"))
    (mutable / "index.json").write_text(json.dumps(data | {index: data[index] + 1}), encoding="utf-8")
    code, lines = checked(mutable)
    assert code == 1
    assert any(f"Error: {index} = " in line for line in lines)
