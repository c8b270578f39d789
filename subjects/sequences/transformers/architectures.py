"""Causal architectures of the installed transformers that have recurrent state, as its own registry and sources say."""

import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

_STATE = re.compile(r"\b(conv|ssm|recurrent)_states?\b|\blinear_attention\b|\b_is_stateful = True\b")
"""What the sources of models with recurrent state contain: a name of a state, a kind of layer, or the flag that forbids rollback."""


@cache
def architectures() -> dict[str, str]:
    """The class of each architecture by its model type; where several types share a class, the last one, which is that of the text model."""
    types: dict[str, str] = {}
    for model_type, class_name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        found = getattr(transformers, class_name, None)
        if found is not None and _has_state(found):
            types[class_name] = model_type
    return {
        model_type: class_name for class_name, model_type in sorted(types.items(), key=lambda item: item[1])
    }


def model_class(architecture: str) -> Any:
    """The class of an architecture."""
    return getattr(transformers, architectures()[architecture])


def configuration_class(architecture: str) -> Any:
    """The class of its configuration; that of the text model, where the registered one has several parts."""
    expected = getattr(model_class(architecture), "config_class", None)
    return expected if expected is not None else CONFIG_MAPPING[architecture]


def _has_state(model: Any) -> bool:
    try:
        source = Path(inspect.getfile(model)).read_text(encoding="utf-8")
    except (OSError, TypeError):
        return False
    return _STATE.search(source) is not None
