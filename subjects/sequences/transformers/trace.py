"""The operations on caches, as lines of a script that needs transformers alone; written while a case runs again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch


class Trace:
    """Lines, and a name for each cache."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._empty: dict[str, str] = {}

    def begun(self, cache: Any) -> str:
        """A cache to begin with; None for one that the forward makes."""
        name = self._name()
        self._empty[name] = "None"
        if not isinstance(cache, str | None):
            sizes = f", max_cache_len={columns}" if (columns := columns_of(cache)) else ""
            self._empty[name] = f"transformers.{type(cache).__name__}(config=model.config{sizes})"
        return name

    def recorded(self, name: str) -> None:
        """An empty cache records its past from now on."""
        self.lines.append(f"{name} = {self._empty.pop(name)}; {name}.activate_past_recording()")

    def ran(
        self, name: str, given: Mapping[str, Any], last: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> None:
        """A forward is about to run.

        Args:
            given: its arguments beside the cache.
            last: the column of the last token of each row.
            rows: the tokens of each row from the first one on.
        """
        arguments = "".join(f", {key}={_literal(value)}" for key, value in given.items() if value is not None)
        cache = self._empty.pop(name, name)
        shown = list(zip(last, map(list, rows), strict=True))
        self.lines.append(f"{name} = run({shown}, {cache}{arguments})")

    def copied(self, name: str) -> str:
        """A copy of a cache."""
        copy = self._name()
        self.lines.append(f"{copy} = copy.deepcopy({name})")
        return copy

    def loaded(self, name: str) -> str:
        """A cache that was saved and is loaded."""
        loaded = self._name()
        self.lines.append(f"{loaded} = pickle.loads(pickle.dumps({name}))")
        return loaded

    def generated(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        options: Mapping[str, Any],
        argument: str,
        held: str,
        whole: Sequence[int],
    ) -> str:
        """`generate` is about to run; the name of the cache that it returns.

        Args:
            argument: the name of the cache among the arguments of a forward.
            held: the name of the cache that it goes on with, "" for none.
            whole: all tokens of the first row's sequence by then.
        """
        name = self._name()
        shown = {
            key: "copy.deepcopy(model)" if key == "assistant_model" else _literal(value)
            for key, value in options.items()
        }
        given = "".join(
            f", {key}={value}" for key, value in (shown | ({argument: held} if held else {})).items()
        )
        prompt = f"torch.tensor({ids.tolist()}), attention_mask=torch.tensor({mask.tolist()})"
        self.lines.append(
            f"output = model.generate({prompt}{given}, return_dict_in_generate=True); {name} = output.get({argument!r})"
        )
        plain = {
            key: shown[key]
            for key in ("max_new_tokens", "num_beams", "do_sample", "pad_token_id")
            if key in shown
        }
        fresh = "".join(f", {key}={value}" for key, value in plain.items())
        row = f"torch.tensor({[list(whole)]})"
        masked = f"attention_mask=torch.ones(1, {len(whole)}, dtype=torch.long), use_cache=False"
        alone = f"model.generate({row}, {masked}{fresh})[0, {len(whole)}:].tolist()"
        self.lines.append(
            f'equal("generated tokens", output.sequences[0, {ids.shape[1]}:].tolist(), {alone})'
        )
        return name

    def did(self, line: str) -> None:
        """Anything else."""
        self.lines.append(line)

    def _name(self) -> str:
        self._count += 1
        return f"c{self._count - 1}"


_traces: list[Trace] = []


def current() -> Trace | None:
    """The trace that is being written, None for none."""
    return _traces[-1] if _traces else None


@contextmanager
def tracing() -> Iterator[Trace]:
    """Write one."""
    _traces.append(Trace())
    try:
        yield _traces[-1]
    finally:
        _traces.pop()


def _literal(value: Any) -> str:
    return repr(value.tolist()) if isinstance(value, torch.Tensor) else repr(value)


def columns_of(cache: Any) -> int:
    """The columns of a static cache; 0 for any other."""
    if type(cache).__name__ != "StaticCache":
        return 0
    return max((getattr(layer, "max_cache_len", 0) for layer in cache.layers), default=0)
