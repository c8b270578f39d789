"""A case of llama-server as a script of at most sixty lines that needs the wheel of xllamacpp and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from subjects.sequences.llamacpp.architectures import metadata
from subjects.sequences.llamacpp.script import MODEL
from subjects.sequences.llamacpp.server import PREFIX, TEXTS

_DEFAULTS = {
    "micro_batch": 512,
    "slots": 4,
    "unified": False,
    "checkpoints": 32,
    "checkpoint_step": 8192,
    "prompt_cache": 8192,
    "reuse": 0,
    "speculation": "none",
    "cache_type": "f32",
}
_TEXTS = """\
    elif isinstance(value[0], str): f("gguf_set_arr_str", None, P, c.c_char_p, P, S)(gguf, key, (c.c_char_p * len(value))(*map(str.encode, value)), len(value))
"""
_SERVER = """\
import json, tempfile, urllib.request, xllamacpp as x
FOLDER = tempfile.mkdtemp() + "/"; f("llama_model_save_to_file", None, P, c.c_char_p)(model, (FOLDER + "model.gguf").encode())
class Server:
    def __init__(self, micro_batch=512, slots=4, unified=False, checkpoints=32, checkpoint_step=8192, prompt_cache=8192, reuse=0, speculation="none", cache_type="f32"):
        p = x.CommonParams(); p.model.path = FOLDER + "model.gguf"; p.slot_save_path = FOLDER; p.warmup = p.fit_params = False; p.verbosity = -1
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel, p.kv_unified = 2048, 512, micro_batch, slots, unified
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1; p.cache_type_k = p.cache_type_v = getattr(x.ggml_type, "GGML_TYPE_" + cache_type.upper())
        p.n_ctx_checkpoints, p.checkpoint_min_step, p.cache_ram_mib, p.n_cache_reuse = checkpoints, checkpoint_step, prompt_cache, reuse
SPECULATE        self.server, self.tokens, self.used, self.slots = x.Server(p), {}, {}, slots
    def post(self, path, **body):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=20).read())
    def ask(self, s, n, slot="any", cache_prompt=True):
        answer = self.post("/completion", prompt=self.tokens[s], n_predict=n, n_probs=32, temperature=0.0, cache_prompt=cache_prompt, return_tokens=True, id_slot=s % self.slots if slot == "own" else -1)
        self.used[s] = answer["id_slot"]; found = {one["id"]: one["logprob"] for one in answer["completion_probabilities"][0]["top_logprobs"]}
        return [found[token] for token in range(32)], answer["tokens"]
def check(server, s, tokens, ahead=1, **how):  # logarithms of probabilities, against those of a fresh server
    server.tokens[s] = server.tokens.get(s, []) + tokens; seen, _ = server.ask(s, ahead, **how)
    one = Server(); one.tokens[0] = server.tokens[s]; compare(f"sequence {s} behind {server.tokens[s]}", seen, one.ask(0, 1)[0])
"""
_NGRAM = """\
        if speculation != "none":
            p.speculative.types = [x.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
            p.speculative.ngram_simple.size_n, p.speculative.ngram_simple.size_m, p.speculative.ngram_simple.min_hits = 1, 3, 1
"""
_DRAFT = """\
        if speculation != "none":
            p.speculative.types = [x.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            p.speculative.draft.mparams.path, p.speculative.draft.n_max, p.speculative.draft.p_min = p.model.path, 3, 0.0
"""
_GENERATE = """\
def generate(server, s, n, **how):
    tokens = server.ask(s, n, **how)[1]; one = Server(); one.tokens[0] = list(server.tokens[s]); equal("generated tokens", tokens, one.ask(0, n)[1]); server.tokens[s] = server.tokens[s] + tokens
"""


def server_script_of(
    model: str,
    seed: int,
    features: Mapping[str, Any],
    operations: Sequence[tuple[str, Mapping[str, Any]]],
    release: str,
) -> str:
    """The text; arguments as of `script_of`.

    Raises:
        NotImplementedError: a feature is not written here.
    """
    between = any("between" in arguments.get("features", {}) for _, arguments in operations)
    if between or features.get("embeddings") or features.get("images"):
        raise NotImplementedError("a script with other requests, or with images")
    name, layers = model.removeprefix(PREFIX), features.get("layers", 4)
    described = {
        **metadata(name, layers, features.get("cache_type", "f32")),
        "tokenizer.ggml.model": "rwkv",
        "tokenizer.ggml.tokens": TEXTS,
    }
    head = MODEL.replace("RELEASE", release or "...", 1).replace("SETTINGS", repr((name, 0, 0, 0, 0)), 1)
    head = head.replace("GIVEN", repr(described), 1).replace("+ 0)", f"+ {seed})", 1)
    head = head.replace("    else: f(", f"{_TEXTS}    else: f(", 1)
    given = {key: value for key, value in features.items() if _DEFAULTS.get(key, value) != value}
    reference = {key: value for key, value in given.items() if key == "cache_type"}
    contexts = sorted({arguments["context"] for _, arguments in operations} | {0})
    lines = [f"c{number} = Server({_named(given)})" for number in contexts]
    lines += [line for name, arguments in operations for line in _lines(name, arguments)]
    more = _GENERATE if any(name == "generate" for name, _ in operations) else ""
    kind = given.get("speculation", "none")
    text = _SERVER.replace("SPECULATE", {"none": "", "ngram": _NGRAM}.get(kind, _DRAFT), 1)
    text = (text + more).replace("one = Server()", f"one = Server({_named(reference)})")
    return head + text + "\n".join(lines) + "\n"


def _named(features: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in features.items())


def _lines(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """An operation; what the client does with its tokens stands here, as a client would do it."""
    server, features = f"c{arguments['context']}", dict(arguments.get("features", {}))
    features.pop("at_once", None)
    given = f", {_named(features)}" if features else ""
    if name == "extend":
        return [f"check({server}, {number}, {list(tokens)}{given})" for number, tokens in arguments["rows"]]
    if name == "fork":
        return [f"{server}.tokens[{arguments['target']}] = list({server}.tokens[{arguments['source']}])"]
    sequence = arguments["sequence"]
    if name == "roll_back":
        return [f"{server}.tokens[{sequence}] = {server}.tokens[{sequence}][:-{arguments['n']}]"]
    if name == "generate":
        return [f"generate({server}, {sequence}, {arguments['n']}{given})"]
    if name == "drop":
        erase = f'{server}.post(f"/slots/{{{server}.used.pop({sequence})}}?action=erase")'
        return [f"del {server}.tokens[{sequence}]", erase]
    file = arguments["name"].replace(" ", "_")
    if name == "save":
        post = f'{server}.post(f"/slots/{{{server}.used[{sequence}]}}?action=save", filename="{file}")'
        return [f"{post}; {file} = list({server}.tokens[{sequence}])"]
    slot = f"{sequence} % {server}.slots"
    return [
        f'{server}.post(f"/slots/{{{slot}}}?action=restore", filename="{file}"); {server}.tokens[{sequence}] = list({file})'
    ]
