"""Where Hypothesis keeps failing examples between runs: a folder here, and a Redis server that a team shares, if there is one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, MultiplexedDatabase

from properties.harness.text.command_lines import pip_line

VARIABLE = "STATECHECK_REDIS"
_FOLDER = "HYPOTHESIS_STORAGE_DIRECTORY"
_SCHEMES = ("redis", "rediss", "unix")
_WAIT_SECONDS = 2.0
_REST_SECONDS = 60.0
Answer = TypeVar("Answer")


def redis_of(option: str, environment: Mapping[str, str]) -> str:
    """The URL that was asked for, by the option or else by STATECHECK_REDIS; "" for none."""
    return option or environment.get(VARIABLE, "").strip()


def _say(sentence: str) -> None:
    # Not what standard error is at the moment: a property that is explored has it redirected.
    print(sentence, file=sys.__stderr__, flush=True)


def example_database(
    redis_url: str = "", *, subject: str = "impl", tell: Callable[[str], None] = _say
) -> ExampleDatabase:
    """The database for `hypothesis.settings`; connections are made when they are needed, and may fail.

    Args:
        redis_url: such as redis://host:6379/0; "" without one.
        subject: what fails on one subject is of no use to another.
        tell: gets one sentence if the server cannot be reached.

    Raises:
        ValueError: the package redis is not installed, or no URL of a server.
    """
    here = DirectoryBasedExampleDatabase(Path(os.environ.get(_FOLDER) or ".hypothesis") / "examples")
    if not redis_url:
        return here
    return MultiplexedDatabase(here, Forgiving(_on_redis(redis_url, subject), _place(redis_url), tell))


def _place(url: str) -> str:
    """The server, without what the URL says of users and passwords."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _on_redis(url: str, subject: str) -> ExampleDatabase:
    try:
        redis, retry = import_module("redis"), import_module("redis.retry")
        kind: Any = import_module("hypothesis.extra.redis").RedisExampleDatabase
    except ImportError as error:
        raise ValueError(
            f"redis = not installed, but should be: {pip_line('redis')} (the extra `redis`) [example_database]"
        ) from error
    once = retry.Retry(import_module("redis.backoff").NoBackoff(), 0)
    limits = {"socket_timeout": _WAIT_SECONDS, "socket_connect_timeout": _WAIT_SECONDS, "retry": once}
    try:
        if urlsplit(url).scheme not in _SCHEMES:
            raise ValueError(f"its scheme is none of {', '.join(_SCHEMES)}")
        client = redis.Redis.from_url(url, **limits)
    except ValueError as error:
        rule = f"a URL such as redis://host:6379/0: {error}"
        raise ValueError(f"redis = {_place(url)!r}, but should be {rule} [example_database]") from error
    database: ExampleDatabase = kind(client, key_prefix=f"statecheck:{subject}:".encode())
    return database


class Forgiving(ExampleDatabase):
    """A database elsewhere that may fail at any time: then it knows nothing for a minute, and is asked again.

    Args:
        place: what people call it.
        tell: gets a sentence the first time.
    """

    def __init__(self, database: ExampleDatabase, place: str, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._database, self._place, self._tell = database, place, tell
        self._rests_until = float("-inf")
        self._told = False
        self._failures: tuple[type[Exception], ...] = (OSError, import_module("redis").RedisError)

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """What is known of the key, nothing while the database fails."""
        return self._asked(lambda: list(self._database.fetch(key)), [])

    def save(self, key: bytes, value: bytes) -> None:
        """Keep the value, if the database does."""
        self._asked(lambda: self._database.save(key, value), None)

    def delete(self, key: bytes, value: bytes) -> None:
        """Forget the value, if the database does."""
        self._asked(lambda: self._database.delete(key, value), None)

    def move(self, src: bytes, dest: bytes, value: bytes) -> None:
        """Keep the value under another key, if the database does."""
        self._asked(lambda: self._database.move(src, dest, value), None)

    def _asked(self, ask: Callable[[], Answer], otherwise: Answer) -> Answer:
        if time.monotonic() < self._rests_until:
            return otherwise
        try:
            return ask()
        except self._failures as error:
            self._rests_until = time.monotonic() + _REST_SECONDS
            if not self._told:
                self._told = True
                why = f"{type(error).__name__}: {error}"
                self._tell(
                    f"the shared examples at {self._place} cannot be reached, and are done without: {why}"
                )
            return otherwise
