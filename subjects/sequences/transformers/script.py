"""A case as about twenty lines that need torch and transformers alone, around which statecheck writes `compare` and `equal`."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
import transformers

from oracle.sequences import ALL_LOGITS
from subjects.sequences.transformers import weights
from subjects.sequences.transformers.context import TransformersContext
from subjects.sequences.transformers.forward import cache_name
from subjects.sequences.transformers.generation import CONTINUOUS
from subjects.sequences.transformers.models import configuration_class, model_class
from subjects.sequences.transformers.trace import tracing

_TEMPLATE = """\
# pip install transformers=={release} torch=={torch}
import copy, pickle, torch, transformers
torch.manual_seed({seed}); generator = torch.Generator().manual_seed({seed})
model = transformers.{model}(transformers.{config}({fields})).eval()
for name, w in model.named_parameters():  # with smaller weights a lost state does not show
    noise, last = torch.randn(w.shape, generator=generator), name.rsplit(".", 1)[-1]
    scale = 1 if "conv" in name and w.ndim == 3 else {deviation} if w.ndim > 1 else 0.1 if last == "bias" or "dt" in last else 0
    w.data = torch.full_like(w, -3.0) if "A_log" in last else noise * scale + (w.data if w.ndim < 2 else 0)
model.to({dtype})
def run(rows, cache, **given):
    given = {{key: torch.tensor(value) if isinstance(value, list) else value for key, value in given.items()}}
    with torch.no_grad(): output = model(**given, {cache}=cache)
    for (column, tokens), logits in zip(rows, output.logits.expand(len(rows), -1, -1)):
        with torch.no_grad(): fresh = copy.deepcopy(model)(torch.tensor([tokens])).logits[0, -1]
        compare(f"behind {{tokens}}", logits[column].tolist(), fresh.tolist())
    return output.get("{cache}", cache)
"""


def script_of(
    make: Callable[[], TransformersContext],
    model: str,
    seed: int,
    operations: Sequence[tuple[str, Mapping[str, Any]]],
) -> str:
    """The text: the operations run once more, while they are written down.

    Args:
        make: a new context.
        operations: by name, with their arguments.

    Raises:
        NotImplementedError: an operation leaves no trace.
    """
    if any(given.get("features", {}).get("mode") == CONTINUOUS for _, given in operations):
        raise NotImplementedError(f"a script with {CONTINUOUS}")
    if any(given.get("features", {}).get(ALL_LOGITS) for _, given in operations):
        raise NotImplementedError("a script with the logits behind each token")
    saved: dict[str, Any] = {}
    contexts: defaultdict[int, TransformersContext] = defaultdict(make)
    context = contexts[0]
    with tracing() as trace, suppress(Exception):
        # A call that raises is the last line.
        for name, arguments in operations:
            _take(contexts[arguments["context"]], name, dict(arguments), saved)
    head = _TEMPLATE.format(
        release=transformers.__version__,
        torch=torch.__version__.partition("+")[0],
        config=configuration_class(model).__name__,
        fields=_fields(context.model.config),
        model=model_class(model).__name__,
        seed=seed,
        deviation=getattr(context.model, "_statecheck_deviation", weights.STANDARD_DEVIATIONS[0]),
        cache=cache_name(context.model),
        dtype=context.model.dtype,
    )
    return head + "\n".join(trace.lines) + "\n"


def _take(context: TransformersContext, name: str, arguments: dict[str, Any], saved: dict[str, Any]) -> None:
    from subjects.sequences import transformers as port

    arguments.pop("context")
    features = arguments.pop("features", {})
    if name == "save":
        saved[arguments["name"]] = context.save(arguments["sequence"])
    elif name == "load":
        context.load(arguments["sequence"], saved[arguments["name"]])
    else:
        getattr(port, name)(context, *arguments.values(), **features)


def _fields(config: Any) -> str:
    """The fields of a configuration that differ from those of its class."""
    default = type(config)().to_dict()
    fields = {
        name: value
        for name, value in config.to_dict().items()
        if name not in ("transformers_version", "architectures", "dtype", "model_type")
        and default.get(name, math.nan) != value
    }
    return ", ".join(f"{name}={value!r}" for name, value in fields.items())
