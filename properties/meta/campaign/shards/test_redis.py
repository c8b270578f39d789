"""Failing examples that a team shares, and campaigns that go on where they cannot be reached."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from properties.harness.campaign.shards import examples_database
from properties.harness.campaign.shards.examples_database import example_database, redis_of

needs_redis = pytest.mark.skipif(find_spec("redis") is None, reason="redis is not installed (extra `redis`)")
needs_server = pytest.mark.skipif(
    find_spec("fakeredis") is None, reason="fakeredis, which pretends to be a server, is not installed"
)
of_redis = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
NOWHERE = "redis://somebody:secret@127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(tmp_path, monkeypatch)


def _use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine whose examples these are."""
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder))


@pytest.fixture
def server() -> Iterator[Any]:
    kind = import_module("fakeredis").TcpFakeServer
    started = kind(("127.0.0.1", 0), server_type="redis")
    thread = Thread(target=started.serve_forever, daemon=True)
    thread.start()
    yield started
    started.shutdown()
    started.server_close()


def _url(server: Any) -> str:
    return f"redis://127.0.0.1:{server.server_address[1]}/0"


def _told(database: ExampleDatabase, key: bytes = b"key") -> set[bytes]:
    return set(database.fetch(key))


def test_without_a_url_examples_stay_in_their_folder(tmp_path: Path) -> None:
    database = example_database()
    database.save(b"key", b"value")
    assert isinstance(database, DirectoryBasedExampleDatabase)
    assert (tmp_path / "examples").is_dir()


@needs_redis
@needs_server
@of_redis
def test_what_fails_on_one_machine_is_tried_on_another(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example_database(_url(server)).save(b"key", b"value")
    _use(tmp_path / "other", monkeypatch)
    other = example_database(_url(server))
    assert _told(other) == {b"value"}
    other.move(b"key", b"later", b"value")
    assert (_told(other), _told(other, b"later")) == (set(), {b"value"})
    other.delete(b"later", b"value")
    assert _told(other, b"later") == set()


@needs_redis
@needs_server
@of_redis
def test_what_fails_on_one_subject_is_no_business_of_another(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example_database(_url(server), subject="mine").save(b"key", b"value")
    _use(tmp_path / "other", monkeypatch)
    assert _told(example_database(_url(server), subject="yours")) == set()


@needs_redis
@of_redis
def test_a_server_that_is_not_there_is_told_once_and_done_without() -> None:
    told: list[str] = []
    database = example_database(NOWHERE, tell=told.append)
    for value in (b"one", b"two"):
        database.save(b"key", value)
        database.move(b"key", b"later", value)
        database.delete(b"other", value)
    assert _told(database, b"later") == {b"one", b"two"}
    assert len(told) == 1
    assert "redis://127.0.0.1:1/0 cannot be reached" in told[0]
    assert "secret" not in told[0]


@needs_redis
@needs_server
@of_redis
def test_a_server_that_comes_back_is_used_again(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples_database, "_REST_SECONDS", 0.0)
    server_class = import_module("redis").Redis
    told: list[str] = []
    database = example_database(_url(server), tell=told.append)
    with monkeypatch.context() as broken:
        broken.setattr(server_class, "pipeline", _refused)
        database.save(b"key", b"lost")
    database.save(b"key", b"kept")
    _use(tmp_path / "other", monkeypatch)
    assert _told(example_database(_url(server))) == {b"kept"}
    assert len(told) == 1


def _refused(*_: Any) -> None:
    raise import_module("redis").ConnectionError("reset by peer")


@needs_redis
@pytest.mark.parametrize("url", ["localhost:6379", "http://host", "redis://host:port/0"])
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis = .*, but should be a URL such as redis://host:6379/0"):
        example_database(url)


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(
        ValueError, match=r"redis = not installed, but should be: .* -m pip install .* redis "
    ):
        example_database(NOWHERE)


def test_the_option_comes_before_the_variable() -> None:
    assert redis_of("", {"STATECHECK_REDIS": "redis://team"}) == "redis://team"
    assert redis_of("redis://mine", {"STATECHECK_REDIS": "redis://team"}) == "redis://mine"
    assert redis_of("", {}) == ""
