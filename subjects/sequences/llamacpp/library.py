"""The C interface of llama.cpp through ctypes: the few functions that sequences take, and where fields of its structures are.

The structures of parameters change between releases. A field is found by its default beside others, and a getter of the library
confirms what was written where there is one.
"""

from __future__ import annotations

import ctypes as c
import math
import os
import random
import struct
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Its assertions would start a debugger, which takes seconds.
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

_POINTER = c.c_void_p
_ROOM = 512
_SPREAD = 0.3
"""Standard deviation of weights: with 0.1 the state hardly moves the logits."""


class Parameters(c.Structure):
    """A structure of parameters with room behind it; the library reads as much as it knows."""

    _fields_ = (("raw", c.c_ubyte * _ROOM),)

    def put(self, offset: int, number: int) -> None:
        """Write 32 bits."""
        self.raw[offset : offset + 4] = struct.pack("<I", number)

    def numbers(self) -> tuple[int, ...]:
        """All of it as 32-bit numbers."""
        return struct.unpack(f"<{_ROOM // 4}i", bytes(self.raw))


class LlamaBatch(c.Structure):
    """Tokens with positions, sequences, and whether logits are wanted."""

    _fields_ = (
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", _POINTER),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    )


class Room(c.Structure):
    """Memory that tensors are made in."""

    _fields_ = (("size", c.c_size_t), ("buffer", _POINTER), ("without_data", c.c_bool))


ABORT = c.CFUNCTYPE(c.c_bool, _POINTER)
"""Whether a decode ends now; asked at each node of the graph."""
_FILL = c.CFUNCTYPE(None, _POINTER, _POINTER)
_LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, _POINTER)
_INT, _SIZE, _TEXT = c.c_int32, c.c_size_t, c.c_char_p
_FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (_LOG, _POINTER)),
    "llama_model_default_params": (Parameters, ()),
    "llama_context_default_params": (Parameters, ()),
    "llama_model_init_from_user": (_POINTER, (_POINTER, _FILL, _POINTER, Parameters)),
    "llama_init_from_model": (_POINTER, (_POINTER, Parameters)),
    "llama_free": (None, (_POINTER,)),
    "llama_model_is_recurrent": (c.c_bool, (_POINTER,)),
    "llama_model_is_hybrid": (c.c_bool, (_POINTER,)),
    "llama_set_abort_callback": (None, (_POINTER, ABORT, _POINTER)),
    "llama_decode": (_INT, (_POINTER, LlamaBatch)),
    "llama_get_logits_ith": (c.POINTER(c.c_float), (_POINTER, _INT)),
    "llama_get_memory": (_POINTER, (_POINTER,)),
    "llama_memory_seq_rm": (c.c_bool, (_POINTER, _INT, _INT, _INT)),
    "llama_memory_seq_cp": (None, (_POINTER, _INT, _INT, _INT, _INT)),
    "llama_memory_seq_pos_max": (_INT, (_POINTER, _INT)),
    "llama_state_seq_get_size": (_SIZE, (_POINTER, _INT)),
    "llama_state_seq_get_data": (_SIZE, (_POINTER, _POINTER, _SIZE, _INT)),
    "llama_state_seq_set_data": (_SIZE, (_POINTER, _POINTER, _SIZE, _INT)),
    "ggml_init": (_POINTER, (Room,)),
    "ggml_free": (None, (_POINTER,)),
    "ggml_new_tensor": (_POINTER, (_POINTER, c.c_int, c.c_int, c.POINTER(c.c_int64))),
    "ggml_set_name": (_POINTER, (_POINTER, _TEXT)),
    "ggml_get_data": (_POINTER, (_POINTER,)),
    "ggml_get_name": (_TEXT, (_POINTER,)),
    "ggml_nelements": (c.c_int64, (_POINTER,)),
    "ggml_nbytes": (_SIZE, (_POINTER,)),
    "ggml_nrows": (c.c_int64, (_POINTER,)),
    "ggml_quantize_chunk": (
        _SIZE,
        (c.c_int, _POINTER, _POINTER, c.c_int64, c.c_int64, c.c_int64, _POINTER),
    ),
    "ggml_backend_tensor_set": (None, (_POINTER, _POINTER, _SIZE, _SIZE)),
    "gguf_init_empty": (_POINTER, ()),
    "gguf_set_val_str": (None, (_POINTER, _TEXT, _TEXT)),
    "gguf_set_val_u32": (None, (_POINTER, _TEXT, c.c_uint32)),
    "gguf_set_val_f32": (None, (_POINTER, _TEXT, c.c_float)),
    "gguf_set_val_bool": (None, (_POINTER, _TEXT, c.c_bool)),
    "gguf_set_arr_data": (None, (_POINTER, _TEXT, c.c_int, _POINTER, _SIZE)),
    "gguf_add_tensor": (None, (_POINTER, _POINTER)),
    "gguf_set_tensor_type": (None, (_POINTER, _TEXT, c.c_int)),
    "gguf_set_arr_str": (None, (_POINTER, _TEXT, c.POINTER(_TEXT), _SIZE)),
    "gguf_write_to_file": (c.c_bool, (_POINTER, _TEXT, c.c_bool)),
    "llama_model_save_to_file": (None, (_POINTER, _TEXT)),
    "llama_sampler_init_greedy": (_POINTER, ()),
    "llama_sampler_sample": (_INT, (_POINTER, _POINTER, _INT)),
    "llama_sampler_free": (None, (_POINTER,)),
    "llama_state_seq_get_size_ext": (_SIZE, (_POINTER, _INT, c.c_uint32)),
    "llama_state_seq_get_data_ext": (_SIZE, (_POINTER, _POINTER, _SIZE, _INT, c.c_uint32)),
    "llama_state_seq_set_data_ext": (_SIZE, (_POINTER, _POINTER, _SIZE, _INT, c.c_uint32)),
}
CACHE_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}
"""Numbers of types in ggml."""
IN_BLOCKS = ("q8_0", "q4_0")
"""Those of them that need heads of whole blocks."""
WEIGHTS = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}
"""Numbers of types in ggml, of matrices whose rows are whole blocks."""
_BLOCK, _FEWEST_ROWS = 32, 16
_ARRAYS: Mapping[type, tuple[int, Any]] = {int: (5, c.c_int32), float: (6, c.c_float)}
"""By the type of the numbers, the array's number in GGUF and its elements."""
_ROOM_OF_TENSORS = 1 << 20


def library_path() -> Path:
    """The library that LLAMACPP_PATH names, or the one in the installed wheel of xllamacpp.

    Raises:
        ValueError: there is none.
    """
    named = os.environ.get("LLAMACPP_PATH", "")
    if named:
        return Path(named)
    spec = find_spec("xllamacpp")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    found = [
        path
        for folder in folders
        for path in sorted(folder.glob("xllamacpp*.*"))
        if path.suffix in (".so", ".pyd")
    ]
    if not found:
        raise ValueError(
            "xllamacpp = not installed, but should be, or a release or a library be named, as by --llamacpp build/libllama.so"
        )
    return found[0]


class LlamaCpp:
    """The library, loaded."""

    def __init__(self, path: Path) -> None:
        self._library = c.CDLL(str(path))
        self.functions: dict[str, Callable[..., Any]] = {}
        """By name, those of `_FUNCTIONS` that the release exports."""
        for name, (result, arguments) in _FUNCTIONS.items():
            if self.has(name):
                function = getattr(self._library, name)
                function.restype, function.argtypes = result, arguments
                self.functions[name] = function
        self.log: list[str] = []
        self._log = _LOG(lambda _, text, __: self.log.append(text.decode(errors="replace")))
        self._fill: Any = None
        self.call("llama_log_set", self._log, None)
        self.call("llama_backend_init")

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the table.

        Raises:
            NotImplementedError: the release has no such function.
        """
        if name not in self.functions:
            raise NotImplementedError(f"the release exports no {name}")
        return self.functions[name](*arguments)

    def has(self, name: str) -> bool:
        """Whether the release exports it."""
        return hasattr(self._library, name)

    def model(
        self, architecture: str, metadata: Mapping[str, Any], seed: int, weights: str = "f32"
    ) -> int | None:
        """A model with weights of the seed, its matrices of a type; None where the library refuses, and says why in `log`."""
        made = self._filled(self._gguf(architecture, metadata), seed, WEIGHTS["f32"])
        if made is None or weights == "f32":
            return made
        # The library gives a tensor the type that the metadata have.
        given = self._gguf(architecture, metadata)
        for name, tensor in self._matrices.items():
            self.call("gguf_add_tensor", given, tensor)
            self.call("gguf_set_tensor_type", given, name, WEIGHTS[weights])
        return self._filled(given, seed, WEIGHTS[weights])

    def _filled(self, gguf: int, seed: int, number: int) -> int | None:
        """The model of these metadata, whose tensors have 32 bits or the type of this number."""
        self.log.clear()
        self._matrices: dict[bytes, int] = {}

        def fill(tensor: int, _: int) -> None:
            count, size, rows = (
                self.call(f"ggml_{name}", tensor) for name in ("nelements", "nbytes", "nrows")
            )
            name = self.call("ggml_get_name", tensor)
            data = _weights(name.decode(), count, seed)
            given, width = data.buffer_info()[0], count // max(rows, 1)
            if size == 4 * count:
                self.call("ggml_backend_tensor_set", tensor, given, 0, size)
                if width % _BLOCK == 0 and rows >= _FEWEST_ROWS and name.endswith(b".weight"):
                    self._matrices[name] = tensor
            elif number:
                packed = c.create_string_buffer(size)
                self.call("ggml_quantize_chunk", number, given, packed, 0, rows, width, None)
                self.call("ggml_backend_tensor_set", tensor, packed, 0, size)

        self._fill = _FILL(fill)
        parameters = self.call("llama_model_default_params")
        found: int | None = self.call("llama_model_init_from_user", gguf, self._fill, None, parameters)
        return found

    def _gguf(self, architecture: str, metadata: Mapping[str, Any]) -> int:
        made: int = self.call("gguf_init_empty")
        self.call("gguf_set_val_str", made, b"general.architecture", architecture.encode())
        for name, value in metadata.items():
            key = (name if name.startswith("tokenizer.") else f"{architecture}.{name}").encode()
            if isinstance(value, bool):
                self.call("gguf_set_val_bool", made, key, value)
            elif isinstance(value, int):
                self.call("gguf_set_val_u32", made, key, value)
            elif isinstance(value, float):
                self.call("gguf_set_val_f32", made, key, value)
            elif isinstance(value, str):
                self.call("gguf_set_val_str", made, key, value.encode())
            elif all(isinstance(text, str) for text in value):
                texts = (_TEXT * len(value))(*map(str.encode, value))
                self.call("gguf_set_arr_str", made, key, texts, len(value))
            else:
                number, element = _ARRAYS[type(value[0])]
                numbers = (element * len(value))(*value)
                self.call("gguf_set_arr_data", made, key, number, c.cast(numbers, _POINTER), len(value))
        return made

    def write(
        self,
        path: Path,
        architecture: str,
        metadata: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]],
        seed: int,
    ) -> None:
        """Write a file of tensors with 32 bits and weights of the seed; the shapes are the library's, the row first."""
        made = self._gguf(architecture, metadata)
        room = self.call("ggml_init", Room(_ROOM_OF_TENSORS, None, False))
        for name, shape in shapes.items():
            sizes = (c.c_int64 * len(shape))(*shape)
            tensor = self.call("ggml_new_tensor", room, WEIGHTS["f32"], len(shape), sizes)
            self.call("ggml_set_name", tensor, name.encode())
            data = _weights(name, math.prod(shape), seed)
            c.memmove(self.call("ggml_get_data", tensor), data.buffer_info()[0], 4 * len(data))
            self.call("gguf_add_tensor", made, tensor)
        self.call("gguf_write_to_file", made, str(path).encode(), False)
        self.call("ggml_free", room)

    def context(
        self,
        model: int,
        *,
        micro_batch: int = 512,
        unified: bool = False,
        snapshots: int = 0,
        cache_type: str = "f32",
    ) -> int | None:
        """A context for four sequences, with one thread; `cache_type` is that of keys and values. None where the library refuses."""
        given: Parameters = self.call("llama_context_default_params")
        numbers = given.numbers()
        # n_ctx, n_batch, n_ubatch, n_seq_max, and in newer releases the number of kept recurrent states.
        for offset, number in ((0, 1024), (4, 512), (8, micro_batch), (12, 4)):
            given.put(offset, number)
        if snapshots:
            given.put(16, snapshots)
        threads = next(at for at in range(4, 16) if numbers[at] == numbers[at + 1] == 4)
        types = next(at for at in range(threads + 2, 40) if numbers[at] == numbers[at + 1] == 1)
        flags = bytes(given.raw).index(b"\0\1\1\1\1", 4 * types + 8)
        for at in (threads, threads + 1):
            given.put(4 * at, 1)
        for at in (types, types + 1):
            given.put(4 * at, CACHE_TYPES[cache_type])
        given.raw[flags + 5] = int(unified)
        found: int | None = self.call("llama_init_from_model", model, given)
        if found is not None:
            self._require("llama_n_ubatch", found, micro_batch)
            self._require("llama_n_seq_max", found, 4)
            if snapshots and self._get("llama_n_rs_seq", found) != snapshots:
                self.call("llama_free", found)
                raise NotImplementedError("the library keeps no earlier states for this model")
        return found

    def _get(self, getter: str, context: int) -> int:
        function = getattr(self._library, getter)
        function.restype, function.argtypes = c.c_uint32, (_POINTER,)
        return int(function(context))

    def _require(self, getter: str, context: int, wanted: int) -> None:
        found = self._get(getter, context)
        if found != wanted:
            raise RuntimeError(f"{getter} = {found}, but should be {wanted}: the layout is another one")


def _weights(name: str, count: int, seed: int) -> array[float]:
    """Numbers of a tensor that depend on its name and the seed: around 1 for norms, below 0 for decays, else around 0."""
    chance = random.Random(zlib.crc32(name.encode()) + seed)
    if name.endswith("norm.weight"):
        return array("f", [1.0] * count)
    if name.endswith("ssm_a"):
        return array("f", [-chance.uniform(0.05, 1.0) for _ in range(count)])
    return array("f", [chance.gauss(0.0, _SPREAD) for _ in range(count)])


def batch_of(entries: Sequence[tuple[int, int, tuple[int, ...], bool]]) -> LlamaBatch:
    """A batch of tokens: each with its position, its sequences, and whether its logits are wanted."""
    count = len(entries)
    sequences = [(c.c_int32 * len(names))(*names) for _, _, names, _ in entries]
    pointers = (c.POINTER(c.c_int32) * count)(*(c.cast(names, c.POINTER(c.c_int32)) for names in sequences))
    made = LlamaBatch(
        count,
        (c.c_int32 * count)(*(token for token, *_ in entries)),
        None,
        (c.c_int32 * count)(*(position for _, position, *_ in entries)),
        (c.c_int32 * count)(*map(len, sequences)),
        pointers,
        (c.c_int8 * count)(*(int(wanted) for *_, wanted in entries)),
    )
    made.kept = sequences
    return made
