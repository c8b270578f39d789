"""Causal architectures of the installed transformers that have recurrent state, as its own registry and sources say."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

_STATE = re.compile(r"\b(conv|ssm|recurrent)_states?\b|\blinear_attention\b|\b_is_stateful = True\b")
"""What the sources of models with recurrent state contain: a name of a state, a kind of layer, or the flag that forbids rollback."""


@cache
def architectures() -> dict[str, str]:
    """The class of each architecture by its model type; where several types share a class, the last one, which is that of the text model."""
    types = {
        class_name: model_type
        for model_type, class_name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
        if _has_state(model_type, class_name)
    }
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


def _has_state(model_type: str, class_name: str) -> bool:
    """Whether the module of the class mentions a state. It is read and not imported: there are hundreds, which take ten seconds."""
    folder = (
        Path(transformers.__file__).parent
        / "models"
        / model_type_to_module_name(model_type).replace(".", "/")
    )
    defines = re.compile(rf"^class {re.escape(class_name)}\b", re.MULTILINE)
    sources = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("modeling_*.py")))
    return any(defines.search(source) and _STATE.search(source) for source in sources)
