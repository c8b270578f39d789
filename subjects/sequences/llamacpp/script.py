"""A case as at most sixty lines that need the wheel of xllamacpp and nothing else, around which statecheck writes `compare` and `equal`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oracle.sequences import FORMS
from subjects.sequences.llamacpp.architectures import metadata
from subjects.sequences.llamacpp.library import CACHE_TYPES

MODEL = """\
# pip install xllamacpp==RELEASE; GGML_NO_BACKTRACE=1 python repro.py
import ctypes as c, glob, importlib.util, random, struct, zlib
L = c.CDLL(glob.glob(importlib.util.find_spec("xllamacpp").submodule_search_locations[0] + "/xllamacpp*.so")[0])
ARCH, MICRO_BATCH, UNIFIED, KEPT_STATES, CACHE_TYPE = SETTINGS
METADATA = GIVEN
P, I, S = c.c_void_p, c.c_int32, c.c_size_t
class Params(c.Structure): _fields_ = [("raw", c.c_ubyte * 512)]
class Batch(c.Structure): _fields_ = [("n", I), ("token", P), ("embd", P), ("pos", P), ("n_seq_id", P), ("seq_id", P), ("logits", P)]
FILL, LOG = c.CFUNCTYPE(None, P, P), c.CFUNCTYPE(None, I, c.c_char_p, P)
def f(name, result, *arguments): g = getattr(L, name); g.restype, g.argtypes = result, arguments; return g
quiet = LOG(lambda *_: None); f("llama_log_set", None, LOG, P)(quiet, None); gguf = f("gguf_init_empty", P)(); text = f("gguf_set_val_str", None, P, c.c_char_p, c.c_char_p)
text(gguf, b"general.architecture", ARCH.encode())
for key, value in METADATA.items():
    key = (key if key.startswith("tokenizer.") else ARCH + "." + key).encode()
    if isinstance(value, bool): f("gguf_set_val_bool", None, P, c.c_char_p, c.c_bool)(gguf, key, value)
    elif isinstance(value, int): f("gguf_set_val_u32", None, P, c.c_char_p, c.c_uint32)(gguf, key, value)
    elif isinstance(value, float): f("gguf_set_val_f32", None, P, c.c_char_p, c.c_float)(gguf, key, value)
    elif isinstance(value, str): text(gguf, key, value.encode())
    else: f("gguf_set_arr_data", None, P, c.c_char_p, I, P, S)(gguf, key, 5, (I * len(value))(*value), len(value))
@FILL
def fill(tensor, _):  # weights of standard deviation 0.3: with smaller ones the state hardly moves the logits
    name, n = f("ggml_get_name", c.c_char_p, P)(tensor).decode(), f("ggml_nelements", c.c_int64, P)(tensor)
    chance = random.Random(zlib.crc32(name.encode()) + 0)
    draw = (lambda: 1.0) if name.endswith("norm.weight") else (lambda: -chance.uniform(0.05, 1)) if name.endswith("ssm_a") else (lambda: chance.gauss(0, 0.3))
    f("ggml_backend_tensor_set", None, P, P, S, S)(tensor, (c.c_float * n)(*(draw() for _ in range(n))), 0, 4 * n)
model = f("llama_model_init_from_user", P, P, FILL, P, Params)(gguf, fill, None, f("llama_model_default_params", Params)())
"""
"""How a script gets a model without a file."""
_CONTEXT = """\
class Context:
    def __init__(self, micro_batch=512, unified=False, kept=0):
        p = f("llama_context_default_params", Params)(); numbers = struct.unpack("<128i", bytes(p.raw))
        threads = next(i for i in range(4, 16) if numbers[i] == numbers[i + 1] == 4)
        types = next(i for i in range(threads + 2, 40) if numbers[i] == numbers[i + 1] == 1)
        values = {0: 1024, 1: 512, 2: micro_batch, 3: 4, threads: 1, threads + 1: 1, types: CACHE_TYPE, types + 1: CACHE_TYPE} | ({4: kept} if kept else {})
        for at, value in values.items(): p.raw[4 * at : 4 * at + 4] = struct.pack("<i", value)  # n_ctx, n_batch, n_ubatch, n_seq_max, ...
        p.raw[bytes(p.raw).index(b"\\0\\1\\1\\1\\1", 4 * types + 8) + 5] = unified  # kv_unified
        self.c = f("llama_init_from_model", P, P, Params)(model, p); self.m = f("llama_get_memory", P, P)(self.c); self.tokens, self.saved = {}, {}
    def extend(self, rows, interleaved=False):
        entries = sorted([(t, len(self.tokens.get(s, ())) + i, s) for s, tokens in rows for i, t in enumerate(tokens)], key=lambda entry: interleaved * entry[1])
        n = len(entries); t, pos, s = ((I * n)(*column) for column in zip(*entries)); ids = [(I * 1)(one) for one in s]
        wanted = {one: at for at, one in enumerate(s)}; pointers = (P * n)(*map(c.addressof, ids))
        arrays = t, pos, (I * n)(*[1] * n), pointers, (c.c_int8 * n)(*(wanted[one] == at for at, one in enumerate(s))); a = list(map(c.addressof, arrays))
        assert f("llama_decode", I, P, Batch)(self.c, Batch(n, a[0], None, *a[1:])) == 0
        for number, tokens in rows: self.tokens[number] = [*self.tokens.get(number, ()), *tokens]
        return {number: f("llama_get_logits_ith", c.POINTER(c.c_float), P, I)(self.c, wanted[number])[:32] for number, _ in rows}
METHODSdef check(context, rows, **how):
    for s, seen in context.extend(rows, **how).items():
        compare(f"sequence {s} behind {context.tokens[s]}", seen, Context().extend([(0, context.tokens[s])])[0])
"""


_REMOVE = """\
    def remove(self, s, first=-1): return f("llama_memory_seq_rm", c.c_bool, P, I, I, I)(self.m, s, first, -1)
"""
_METHODS = {
    "drop": """\
    def drop(self, s): print("  removed:", self.remove(s)); self.tokens.pop(s, None)
""",
    "fork": """\
    def fork(self, s, to): self.remove(to); f("llama_memory_seq_cp", None, P, I, I, I, I)(self.m, s, to, -1, -1); self.tokens[to] = list(self.tokens[s])
""",
    "roll_back": """\
    def roll_back(self, s, n):
        done = self.remove(s, len(self.tokens[s]) - n); print("  rolled back:", done); self.tokens[s] = self.tokens[s][:-n] if done else self.tokens[s]
""",
    "save": """\
    def save(self, s):
        data = c.create_string_buffer(f("llama_state_seq_get_size", S, P, I)(self.c, s)); f("llama_state_seq_get_data", S, P, P, S, I)(self.c, data, len(data), s); return data, list(self.tokens[s])
""",
    "load": """\
    def load(self, s, saved): print("  loaded:", f("llama_state_seq_set_data", S, P, P, S, I)(self.c, saved[0], len(saved[0]), s)); self.tokens[s] = saved[1]
""",
}
"""Parts of a script that only some cases need."""


def script_of(
    model: str,
    seed: int,
    features: Mapping[str, Any],
    operations: Sequence[tuple[str, Mapping[str, Any]]],
    release: str,
) -> str:
    """The text: `features` of the context, and operations by name with their arguments.

    Raises:
        NotImplementedError: an operation is not written here.
    """
    forms = [given["features"].keys() & FORMS.keys() for name, given in operations if name == "extend"]
    if any(forms) or any(name not in ("extend", *_METHODS) for name, _ in operations):
        raise NotImplementedError("a script with generate, reorder or a form of an extension")
    layers, cache_type = features.get("layers", 4), features.get("cache_type", "f32")
    settings = (
        model,
        features.get("micro_batch", 512),
        features.get("unified", False),
        features.get("snapshots", 0),
        CACHE_TYPES[cache_type],
    )
    text = (MODEL + _CONTEXT).replace("RELEASE", release or "...", 1).replace("SETTINGS", repr(settings), 1)
    text = text.replace("GIVEN", repr(metadata(model, layers, cache_type)), 1).replace(
        "+ 0)", f"+ {seed})", 1
    )
    used = [_METHODS[name] for name in dict.fromkeys(name for name, _ in operations) if name in _METHODS]
    text = text.replace("METHODS", "".join([_REMOVE, *used] if used else []), 1)
    contexts = sorted({arguments["context"] for _, arguments in operations} | {0})
    lines = [f"c{number} = Context(MICRO_BATCH, UNIFIED, KEPT_STATES)" for number in contexts]
    return text + "\n".join([*lines, *(_line(name, arguments) for name, arguments in operations)]) + "\n"


def _line(name: str, arguments: Mapping[str, Any]) -> str:
    context = f"c{arguments['context']}"
    if name == "extend":
        rows = [(number, list(tokens)) for number, tokens in arguments["rows"]]
        return f"check({context}, {rows}{', interleaved=True' if arguments['features'].get('interleaved') else ''})"
    if name in ("save", "load"):
        saved = arguments["name"].replace(" ", "_")
        sequence = arguments["sequence"]
        return (
            f"{saved} = {context}.save({sequence})"
            if name == "save"
            else f"{context}.load({sequence}, {saved})"
        )
    numbers = [value for key, value in arguments.items() if key not in ("context", "features", "self")]
    return f"{context}.{name}({', '.join(map(str, numbers))})"
