"""Which architectures with recurrent state a library has, and the smallest metadata with which each of them makes a model.

Names are those texts of the library that it does not refuse as an unknown architecture. Metadata begin with sizes that most of them take;
the library says which key is missing or has another type, and gets it. Each architecture is tried in a process of its own,
since an assertion ends the process.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.util import limits, temporary
from subjects.sequences.llamacpp.library import IN_BLOCKS, LlamaCpp, batch_of, library_path

LAYERS = (4, 3, 2, 1)
_TRIES = 80
_SIZES: Mapping[str, Any] = {
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5,
    "vocab_size": 32,
    "tokenizer.ggml.model": "no_vocab",
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 32,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
    "wkv.head_size": 16,
    "full_attention_interval": 2,
}
_EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16}
_TYPES: Mapping[str, Any] = {"f32": 1.0, "bool": True, "i32": [2, 2, 2, 2], "u32": 2}
_UNKNOWN = "unknown model architecture"


_WIDE_HEADS: Mapping[str, Any] = {
    "attention.head_count": 2,
    **dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), 32),
}
"""Of a model whose heads have 32 numbers, where others have 16."""


def metadata(architecture: str, layers: int, cache_type: str) -> dict[str, Any]:
    """The metadata of a model, of which a cache of keys and values has this type.

    Raises:
        NotImplementedError: the process ends while the context is made.
    """
    found = architectures()[architecture][str(layers)]
    if cache_type not in IN_BLOCKS:
        return found
    if architecture == "qwen4exp":
        raise NotImplementedError(f"a cache of {cache_type} for qwen4exp")
    return found | {key: _WIDE_HEADS[key] for key in found.keys() & _WIDE_HEADS}


def architectures() -> dict[str, dict[str, Any]]:
    """By architecture and number of layers, as text, the metadata of a model; remembered in a file for each library.

    Raises:
        ValueError: the library cannot be loaded, or makes no models; says why.
    """
    path = library_path()
    state = path.stat()
    name = f"statecheck-llamacpp-{len(LAYERS)}-{os.getuid()}-{state.st_size}-{state.st_mtime_ns}.json"
    kept = temporary.lasting_folder() / name
    if not kept.is_file():
        command = [sys.executable, "-m", __name__, str(kept)]
        given = rooms.added_to({**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        done = subprocess.run(
            command,
            check=False,
            timeout=limits.ARCHITECTURES,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=given,
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line.strip()), f"exit code {done.returncode}")
            raise ValueError(
                f"library = {str(path)!r}, but should be a library of llama.cpp that makes models [architectures]: {reason}"
            )
    found: dict[str, dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def _texts(path: Path) -> set[str]:
    """Texts of the library that may be names."""
    texts = re.findall(rb"(?<=\0)[a-z][a-z0-9_.\-]{2,30}(?=\0)", path.read_bytes())
    return {text.decode() for text in texts}


def _is_known(library: LlamaCpp, name: str) -> bool:
    library.model(name, {}, 0)
    return not any(_UNKNOWN in line for line in library.log)


def _names(library: LlamaCpp, path: Path) -> list[str]:
    known = {name for name in _texts(path) if _is_known(library, name)}
    # A linker keeps a text that another one ends with as its end.
    ends = {name[at:] for name in known for at in range(1, len(name) - 2)} - known
    return sorted(known | {name for name in ends if _is_known(library, name)})


def _starts(layers: int) -> Iterator[dict[str, Any]]:
    """Metadata to begin with: layers by turns with and without attention, or all alike; without and with experts."""
    for heads in ([2 * (at % 2) for at in range(layers)], 2):
        others = ({"token_shift_count": 1}, {"feed_forward_length": [0] * layers}, {"ssm.group_count": 0})
        for more in ({}, _EXPERTS, *others):
            yield {**_SIZES, **more, "block_count": layers, "attention.head_count_kv": heads}


def _guess(key: str, layers: int, *, array: bool) -> Any:
    if array:
        return [2] * layers
    if "epsilon" in key:
        return 1e-5
    if "lower_bound" in key:
        return -1.0
    if re.search("scale|beta|alpha|base", key):
        return 1.0
    if re.search("rank|dim|length|head_size|extra", key):
        return 16
    if "cache" in key:
        return 3
    return 1 if re.search("func|leading", key) else 2


def _completed(library: LlamaCpp, name: str, given: dict[str, Any], layers: int) -> dict[str, Any] | None:
    """The metadata with which the library makes a model with recurrent state; None where there are none, and nothing where it has no such state."""
    for _ in range(_TRIES):
        model = library.model(name, given, 0)
        if model is not None:
            kinds = ("llama_model_is_recurrent", "llama_model_is_hybrid")
            recurrent = any(library.call(kind, model) for kind in kinds)
            if not recurrent:
                return {}
            return given if runs(library, model) else None
        said = " ".join(library.log)
        missing = re.search(rf"key not found in model: (?:{re.escape(name)}\.)?(\S+)", said)
        other = re.search(rf"key {re.escape(name)}\.(\S+) has wrong type \S+ but expected type (\w+)", said)
        if missing and missing[1] not in given:
            given[missing[1]] = _guess(missing[1], layers, array="array key" in said)
        elif other:
            guessed = _guess(other[1], layers, array=False)
            given[other[1]] = guessed if isinstance(guessed, float) else _TYPES.get(other[2], 2)
        else:
            return None
    return None


def runs(library: LlamaCpp, model: int) -> bool:
    """Whether it has logits behind some tokens, and behind more of them."""
    context = library.context(model)
    if context is None:
        return False
    tokens = [(token, at, (0,), at == 4) for at, token in enumerate((1, 2, 3, 4, 5))]
    more = [(6, 5, (0,), True)]
    return all(library.call("llama_decode", context, batch_of(entries)) == 0 for entries in (tokens, more))


def _apart(work: Any) -> Any:
    """The result of `work` in a child process; None where the child ends before."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return json.loads(data) if data else None


def _enumerate() -> dict[str, dict[str, Any]]:
    path = library_path()
    library = LlamaCpp(path)
    found: dict[str, dict[str, Any]] = {}
    for name in _names(library, path):
        for layers in LAYERS:
            attempts = (
                _apart(lambda given=start, name=name, layers=layers: _completed(library, name, given, layers))
                for start in _starts(layers)
            )
            metadata = next((attempt for attempt in attempts if attempt is not None), None)
            if metadata:
                found.setdefault(name, {})[str(layers)] = metadata
            elif layers == LAYERS[0]:
                break
    return found


if __name__ == "__main__":
    written = Path(f"{sys.argv[1]}.{os.getpid()}")
    written.write_text(json.dumps(_enumerate()), encoding="utf-8")
    written.replace(sys.argv[1])
