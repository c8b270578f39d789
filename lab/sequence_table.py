"""The table of a port of sequences: models by operations and values of features, as Markdown.

    python -m lab.sequence_table transformers --examples 4

A cell is `=` and the number of examples that agreed with fresh runs, and `refused` where the library reported that an operation did not
happen; `≠` and the largest distance of logits, or the law that an example
broke; `raises` where the library failed; `no` where it does not offer this; `?` where the model was not verified.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oracle.sequences import SHARED_TOKENS
from statecheck.case.values import Record
from statecheck.subject.loading import load
from statecheck.subject.subject import NotOffered

Steps = Callable[[Any, random.Random, Mapping[str, Any]], Iterator[Record]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject", help="a port of sequences")
    parser.add_argument("--examples", type=int, default=4, help="examples of each cell")
    parser.add_argument("--models", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the examples")
    options = parser.parse_args(arguments)
    subject = load(options.subject)
    choices = subject.sequences
    if choices is None:
        raise ValueError(f"subject = {options.subject!r}, but should be a port of sequences [sequence_table]")
    models = [name for name in options.models.split(",") if name] or choices.models
    columns = list(dict.fromkeys(name for model in models for name in _columns(choices, model)))
    print(f"| model | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}", flush=True)
    for model in models:
        cells = dict(_cells(subject.module.Sequences, choices, model, options))
        print(f"| {model} | {' | '.join(cells.get(name, '') for name in columns)} |", flush=True)


def _columns(choices: Any, model: str) -> Iterator[str]:
    yield from _OPERATIONS
    for function in ("new", "extend", "generate"):
        for name, values in choices.list_features(model, function).items():
            yield from (f"{name} {value}" for value in values[1:])


def _cells(library: Any, choices: Any, model: str, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for name, steps in _OPERATIONS.items():
        yield name, _cell(library, model, {}, steps, {}, options)
    for name, values in choices.list_features(model, "new").items():
        for value in values[1:]:
            yield f"{name} {value}", _cell(library, model, {name: value}, _everything, {}, options)
    for name, values in choices.list_features(model, "extend").items():
        for value in values[1:]:
            yield f"{name} {value}", _cell(library, model, {}, _batch, {name: value}, options)
    generation = choices.list_features(model, "generate")
    for name, values in generation.items():
        for value in values[1:]:
            yield f"{name} {value}", _cell(library, model, {}, _generate, {name: value}, options, generation)


def _cell(
    library: Any,
    model: str,
    features: Mapping[str, Any],
    steps: Steps,
    given: Mapping[str, Any],
    options: argparse.Namespace,
    generation: Mapping[str, Sequence[Any]] | None = None,
) -> str:
    """One cell: the worst of its examples."""
    compared, worst, words, refused = 0, 0.0, "", False
    for example in range(options.examples):
        chosen = dict(given)
        if generation and example % 2:
            # Many features only matter together with the second value of the first one, such as a cache.
            first, values = next(iter(generation.items()))
            chosen.setdefault(first, values[min(1, len(values) - 1)])
        try:
            scenario = library(model, 0, features)
            for step in steps(scenario, random.Random(options.seed * 1000 + example), chosen):
                broken = {law: said for law, said in dict(step["broken"].fields).items() if said != "nothing"}
                worst = max(worst, step["distance"])
                refused = refused or not step["happened"]
                words = words or next(iter(broken), "")
                if broken:
                    break
            compared += 1
        except NotOffered as error:
            if "not verified" in str(error) or "not built" in str(error):
                return "?"
        except Exception as error:
            return f"raises {type(error).__name__}"
    if words:
        return f"≠ {worst:.1g}" if words == "logits" else f"≠ {words}"
    return f"= {compared}{' refused' if refused else ''}" if compared else "no"


def _tokens(source: random.Random, most: int = 6) -> list[int]:
    return [source.randint(1, 15) for _ in range(source.randint(1, most))]


def _pieces(scenario: Any, source: random.Random, _: Mapping[str, Any]) -> Iterator[Record]:
    for _step in range(4):
        yield scenario.extend(0, [(0, _tokens(source))], {})


def _batch(scenario: Any, source: random.Random, features: Mapping[str, Any]) -> Iterator[Record]:
    """Two sequences, which have the same tokens where a token may be that of both."""
    shared = bool(features.get(SHARED_TOKENS))
    first, second = _tokens(source), _tokens(source)
    yield scenario.extend(0, [(0, first), (1, first if shared else second)], features)
    for _step in range(2):
        width = source.randint(1, 3)
        rows = [(number, [source.randint(1, 15) for _ in range(width)]) for number in (0, 1)]
        yield scenario.extend(0, [(number, rows[0][1]) for number in (0, 1)] if shared else rows, features)


def _after(name: str, *arguments: Any) -> Steps:
    def steps(scenario: Any, source: random.Random, _: Mapping[str, Any]) -> Iterator[Record]:
        rows = [(0, _tokens(source)), (1, _tokens(source))]
        yield scenario.extend(0, rows, {})
        yield scenario.extend(0, [(0, [5, 6]), (1, [7, 8])], {})
        yield getattr(scenario, name)(0, *arguments)
        for number in range(3):
            if scenario.tokens.of((0, number)):
                yield scenario.extend(0, [(number, [source.randint(1, 15)])], {})

    return steps


def _save(scenario: Any, source: random.Random, _: Mapping[str, Any]) -> Iterator[Record]:
    yield scenario.extend(0, [(0, _tokens(source)), (1, _tokens(source))], {})
    yield scenario.save(0, 0, "saved")
    yield scenario.extend(0, [(0, _tokens(source))], {})
    yield scenario.load(0, 2, "saved")
    yield scenario.extend(0, [(2, [source.randint(1, 15)]), (0, [3])], {})


def _load_in(context: int) -> Steps:
    def steps(scenario: Any, source: random.Random, _: Mapping[str, Any]) -> Iterator[Record]:
        yield scenario.extend(0, [(0, _tokens(source))], {})
        yield scenario.save(0, 0, "saved")
        yield scenario.load(context, 1, "saved")
        yield scenario.extend(context, [(1, _tokens(source))], {})

    return steps


def _save_of_a_fork(scenario: Any, source: random.Random, _: Mapping[str, Any]) -> Iterator[Record]:
    yield scenario.extend(0, [(0, [*_tokens(source), 1, 2])], {})
    yield scenario.fork(0, 0, 1)
    yield scenario.save(0, 1, "saved")
    yield scenario.load(0, 2, "saved")
    yield scenario.extend(0, [(2, _tokens(source))], {})


def _copy_after_rollback(scenario: Any, source: random.Random, _: Mapping[str, Any]) -> Iterator[Record]:
    yield scenario.extend(0, [(3, [*_tokens(source), 1, 2])], {})
    yield scenario.roll_back(0, 3, 1)
    yield scenario.fork(0, 3, 2)
    yield scenario.extend(0, [(2, _tokens(source))], {})


def _generate(scenario: Any, source: random.Random, features: Mapping[str, Any]) -> Iterator[Record]:
    yield scenario.extend(0, [(0, _tokens(source) + [3, 1, 4, 1])], {})
    yield scenario.generate(0, 0, 4, features)
    if scenario.tokens.of((0, 0)):
        yield scenario.extend(0, [(0, [source.randint(1, 15)])], {})


def _everything(scenario: Any, source: random.Random, features: Mapping[str, Any]) -> Iterator[Record]:
    compared = False
    try:
        for step in _batch(scenario, source, {}):
            compared = True
            yield step
    except NotOffered:
        if not compared:
            raise
    for operation in (
        _after("roll_back", 0, 1),
        _after("roll_back", 0, 2),
        _after("reorder", (1, 0)),
        _copy_after_rollback,
    ):
        try:
            yield from operation(scenario, source, features)
        except NotOffered:
            continue


_OPERATIONS: dict[str, Steps] = {
    "pieces": _pieces,
    "batch": _batch,
    "fork": _after("fork", 0, 2),
    "roll back": _after("roll_back", 0, 1),
    "save, load": _save,
    "load in another context": _load_in(1),
    "load in another process": _load_in(2),
    "save of a fork": _save_of_a_fork,
    "drop": _after("drop", 0),
    "reorder": _after("reorder", (1, 0)),
    "generate": _generate,
}


if __name__ == "__main__":
    main()
