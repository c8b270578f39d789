"""llama-server in the process, through `xllamacpp.Server`: sequences live with the client, as prompts of token ids, and states in slots.

A sequence is extended by a request with all of its tokens. What the server reuses of them, by slots, context checkpoints and
files of slots, must not matter: the reference is a fresh server that gets one request.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from statecheck.sequences import damaged
from statecheck.util import limits
from statecheck.util.temporary import folder_of_process
from subjects.sequences.conditions import PICTURES, PROMPTS_BETWEEN, positions
from subjects.sequences.llamacpp.images import picture
from subjects.sequences.llamacpp.library import IN_BLOCKS, LlamaCpp

AGAIN = 4
"""A server keeps the state that many tokens before the end of a prompt, from which it goes on where the prompt comes again."""
PREFIX = "llama-server:"
"""Before the architecture, in names of models."""
VOCABULARY = 32
TEXTS = [f"^{number:02}" for number in range(VOCABULARY)]
"""Of the tokens: none is in another one, or in two that follow each other, as a stop token needs."""
SPECULATION = ("none", "ngram", "draft", "other draft")
"""Drafts come from the sequence itself, from the same model, or from one with other weights, whose drafts are mostly wrong."""
EFFECTS = {
    "slots: a request took the slot of another sequence": "extend",
    "cache_prompt: a prompt was processed anew": "extend",
    "checkpoints: a request went back in its slot": "extend",
    "prompt_cache: a request found its prompt outside of its slot": "extend",
    "reuse: tokens behind others were reused": "extend",
    "slot: a request named its slot": "extend",
    "ahead: a request generated several tokens": "extend",
    "at_once: requests came at the same time": "extend",
    "between: an infill came between": "extend",
    "between: a request came at the same time": "extend",
    "embeddings: a request for an embedding came between": "extend",
    "images: a request with an image came between": "extend",
    "images: a prompt had an image": "extend",
    "images: a request went on behind an image in its slot": "extend",
    "cancel: a connection was closed": "cancel",
    "load: a slot was restored from a file": "save",
    "speculation: a draft was accepted": "generate",
    "speculation: a draft was rejected": "generate",
}
"""Effects of servers beside those of the C interface; `complete` counts them in responses."""
BETWEEN = ("nothing", "embedding", "infill", "image")
_DRAFTS, _BATCH = 3, 512
_LONG = 200
"""Tokens of a request that is to be cancelled: it takes some tens of milliseconds."""
_names = itertools.count()


def is_installed() -> bool:
    """Whether the binding with the server can be imported; a library alone has none."""
    return find_spec("xllamacpp") is not None and not os.environ.get("LLAMACPP_PATH")


def features() -> dict[str, Sequence[Any]]:
    """Features beside the size of micro-batches: of servers, of requests that extend a sequence, and of those that generate."""
    return {
        "slots": (4, 1, 2),
        "checkpoints": (32, 0, 1),
        "checkpoint_step": (8192, 1, 4),
        "prompt_cache": (8192, 0),
        "reuse": (0, 1),
        "speculation": SPECULATION,
        "slot": ("any", "own"),
        "cache_prompt": (True, False),
        "ahead": (1, 3),
        "at_once": (False, True),
        "between": BETWEEN,
        "embeddings": (False, True),
        "images": (False, True),
    }


@dataclass(eq=False)
class ServerContext:
    """A server, the tokens of each sequence, and the slot that a sequence used last.

    Args:
        features: those that the server was made with.
        marker: stands in a text for an image; "" in a server without images.
        effects: how often what `EFFECTS` of the port names has happened.
        held: by slot, what it has processed, as `positions` of images; None where that is not known.
        kept: by slot, the length of the prompt whose tail has a checkpoint before it; 0 for none.
        left: prompts that another prompt has replaced in their slot, and those of cancelled requests: the prompt cache may have them.
        reused: by sequence, what its slot held before its last request, and the tokens of the prompt that the request processed.
    """

    server: Any
    slots: int
    features: Mapping[str, Any] = field(default_factory=dict)
    marker: str = ""
    effects: Counter[str] = field(default_factory=Counter)
    held: dict[int, list[int] | None] = field(default_factory=dict)
    left: list[list[int]] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)
    reused: dict[int, tuple[list[int], int]] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The server's response; raises as `opened`."""
        with self.opened(path, body) as answer:
            return json.loads(answer.read())

    def report(self, path: str) -> Any:
        """What the server says of itself, such as its slots; raises as `opened`."""
        with self.opened(path, None) as answer:
            return json.loads(answer.read())

    def opened(self, path: str, body: Mapping[str, Any] | None) -> Any:
        """The connection, behind the head of the answer.

        Args:
            body: what is posted; None where nothing is.

        Raises:
            NotImplementedError: the server says that it does not support this.
            RuntimeError: another error, with what the server says of it.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - a server of our own
            self.server.listening_address + path, data, {"Content-Type": "application/json"}
        )
        try:
            return urllib.request.urlopen(request, timeout=limits.REQUEST)  # noqa: S310 - as above
        except urllib.error.HTTPError as error:
            kind = NotImplementedError if error.code == HTTPStatus.NOT_IMPLEMENTED else RuntimeError
            raise kind(f"{path}: {error.code} {_message(error.read())}") from error

    def prompt(self, tokens: Sequence[int]) -> Any:
        """What a request has for the tokens: a text with images, if one of them stands for a picture."""
        shown = [token for token in tokens if token in PICTURES] if self.marker else []
        if not shown:
            return list(tokens)
        text = "".join(f"{self.marker if token in shown else ''}{TEXTS[token]}" for token in tokens)
        return {"prompt_string": text, "multimodal_data": [picture(token) for token in shown]}

    @property
    def excluded(self) -> Collection[int]:
        """Tokens that stand for pictures in prompts: a generated one would be the text alone."""
        return PICTURES if self.marker else ()

    def positions(self, tokens: Sequence[int]) -> list[int]:
        """What a slot holds for the tokens."""
        return [*positions(tokens)] if self.marker else list(tokens)

    def complete(
        self,
        sequence: int,
        n: int,
        *,
        slot: str = "any",
        cache_prompt: bool = True,
        stop: int | None = None,
    ) -> Any:
        """Complete the sequence's tokens greedily, up to a stop token."""
        body = {
            "stop": [] if stop is None else [TEXTS[stop]],
            "prompt": self.prompt(self.tokens[sequence]),
            "logit_bias": [[token, False] for token in self.excluded],
            "n_predict": n,
            "n_probs": VOCABULARY,
            "temperature": 0.0,
            "cache_prompt": cache_prompt,
            "return_tokens": True,
            "id_slot": sequence % self.slots if slot == "own" else -1,
        }
        answer = self.post("/completion", body)
        self._count(sequence, answer, slot=slot, cache_prompt=cache_prompt)
        self.used[sequence] = int(answer["id_slot"])
        return answer

    def _count(self, sequence: int, answer: Any, *, slot: str, cache_prompt: bool) -> None:
        """Count what the features did in a request, by what the server says of it."""
        number, prompt = int(answer["id_slot"]), self.positions(self.tokens[sequence])
        timings, held = answer.get("timings", {}), self.held.get(number, [])
        reused, found = int(timings.get("cache_n", 0)), self.effects
        drafted, accepted = (int(timings.get(name, 0)) for name in ("draft_n", "draft_n_accepted"))
        found["speculation: a draft was accepted"] += accepted
        found["speculation: a draft was rejected"] += drafted - accepted
        found["slot: a request named its slot"] += slot == "own"
        found["images: a prompt had an image"] += min(prompt) < 0
        found["images: a request went on behind an image in its slot"] += min(prompt[:reused], default=0) < 0
        others = {other for other, taken in self.used.items() if taken == number and other != sequence}
        found["slots: a request took the slot of another sequence"] += bool(others)
        found["micro_batch: a batch was cut"] += len(prompt) - reused > self.features.get("micro_batch", 512)
        found["unified: several sequences were in one cache"] += (
            bool(self.features.get("unified")) and len(self.tokens) > 1
        )
        if held is not None:
            common = next(
                (at for at, pair in enumerate(zip(held, prompt, strict=False)) if pair[0] != pair[1]),
                min(len(held), len(prompt)),
            )
            found["cache_prompt: a prompt was processed anew"] += not cache_prompt and common > 1
            found["checkpoints: a request went back in its slot"] += 0 < reused <= common < len(held)
            beyond = reused > common
            found["prompt_cache: a request found its prompt outside of its slot"] += (
                beyond and not self.features.get("reuse")
            )
            found["reuse: tokens behind others were reused"] += beyond and bool(self.features.get("reuse"))
        processed = int(timings.get("prompt_n", len(prompt)))
        self._note_reuse(sequence, number, processed, cache_prompt=cache_prompt)
        # Where a request went on from a state, an earlier checkpoint may be nearer than `checkpoint_min_step`, and a new one is not promised.
        promised = reused == 0 or self.features.get("checkpoint_step", 0) == 1
        keeps = (processed > AGAIN and promised) or self.kept.get(number) == len(prompt)
        self.kept[number] = len(prompt) if keeps else 0
        # The last token that was chosen is not processed; behind a stop token, drafts may have been.
        held_now = [*prompt, *(int(token) for token in answer["tokens"][:-1])]
        behind = int(answer.get("tokens_cached", 0)) > len(held_now)
        found["stop: drafts behind the stop token were processed"] += behind
        if held and held[:1] != prompt[:1]:
            self.left.append(held)
        self.held[number] = None if behind else held_now

    def _note_reuse(self, sequence: int, slot: int, processed: int, *, cache_prompt: bool) -> None:
        """Note what the slot held, where the server has to find it: in the sequence's own slot, with no other like it, and at a place where it keeps states.

        A prompt that is the beginning of a longer one in the prompt cache was processed anew with 2026.10.11549, and not without that cache.
        """
        prompt, held = self.positions(self.tokens[sequence]), self.held.get(slot)
        others = [tokens for number, tokens in self.held.items() if number != slot]
        unique = all(tokens is not None and tokens[:1] != prompt[:1] for tokens in others)
        if self.features.get("prompt_cache", 1):
            unique &= not any(tokens[: len(held or ())] == held for tokens in self.left)
        self.reused.pop(sequence, None)
        if not (held and unique and cache_prompt and self.used.get(sequence) == slot):
            return
        # No checkpoint is within an image.
        keeps = self.features.get("checkpoints", 0) > 0 and self.kept.get(slot) == len(prompt)
        keeps &= min(prompt[-AGAIN - 1 :]) >= 0
        if len(held) < len(prompt) or keeps or len(prompt) <= AGAIN:
            known, new = (
                [token for token in part if token >= 0] for part in (held, prompt[len(prompt) - processed :])
            )
            self.reused[sequence] = known, len(new)

    def extend(
        self,
        rows: Sequence[tuple[int, Sequence[int]]],
        *,
        slot: str = "any",
        cache_prompt: bool = True,
        ahead: int = 1,
        at_once: bool = False,
        between: str = BETWEEN[0],
    ) -> list[list[float]]:
        """A request for each row; logarithms of the probabilities behind each prompt, after which `ahead` tokens are generated.

        Requests at once come to the server in any order, that between them, too, and take any slot: one that waits for a slot of its own may wait forever.
        """
        for sequence, tokens in rows:
            self.tokens.setdefault(sequence, []).extend(tokens)
        self.effects["at_once: requests came at the same time"] += at_once and len(rows) > 1
        self.effects["ahead: a request generated several tokens"] += ahead > 1
        with ThreadPoolExecutor(1 + len(rows) if at_once else 1) as pool:
            came = pool.submit(self._come_between, between)
            responses = [
                pool.submit(
                    self.complete,
                    sequence,
                    ahead,
                    slot="any" if at_once else slot,
                    cache_prompt=cache_prompt,
                )
                for sequence, _ in rows
            ]
        if came.result():
            # At once, it may have taken a slot behind a request for a sequence.
            if at_once:
                self._forget(*range(self.slots))
            self.effects["between: a request came at the same time"] += at_once
        return [_logarithms(response.result(), self.excluded) for response in responses]

    def _come_between(self, request: str) -> bool:
        """A request that completes no prompt of ours, and takes a slot; whether there was one."""
        if request == "infill":
            # PROMPTS_BETWEEN are its tokens.
            self.post("/infill", {"input_prefix": TEXTS[1], "input_suffix": TEXTS[2], "n_predict": 2})
            self.effects["between: an infill came between"] += 1
        elif request == "embedding" and self.features.get("embeddings"):
            self.post("/embedding", {"content": PROMPTS_BETWEEN[request]})
            self.effects["embeddings: a request for an embedding came between"] += 1
        elif request == "image" and self.marker:
            self.post("/completion", {"prompt": self.prompt(PROMPTS_BETWEEN[request]), "n_predict": 2})
            self.effects["images: a request with an image came between"] += 1
        else:
            return False
        self.left.append(self.positions(PROMPTS_BETWEEN[request]))
        self._forget(*range(self.slots))
        return True

    def _forget(self, *slots: int) -> None:
        """What the slots hold is not known any more."""
        self.left += filter(None, map(self.held.get, slots))
        self.held |= dict.fromkeys(slots)

    def generate(self, sequence: int, n: int, *, stop: int | None = None, slot: str = "any") -> list[int]:
        """A request for several tokens."""
        tokens = [int(token) for token in self.complete(sequence, n, slot=slot, stop=stop)["tokens"]]
        self.tokens[sequence] += tokens
        return tokens

    def cancel(self, sequence: int, tokens: Sequence[int], after: int) -> None:
        """A request in the sequence's own slot, whose connection is closed behind `after` tokens; the sequence has what it had."""
        number = sequence % self.slots
        body = {
            "prompt": self.prompt([*self.tokens.get(sequence, []), *tokens]),
            "n_predict": _LONG,
            "temperature": 0.0,
            "stream": True,
            "id_slot": number,
        }
        with self.opened("/completion", body) as answer:
            for _ in range(2 * after):
                answer.readline()
        # A request that names a busy slot may wait for ever (docs/findings/llamacpp.md).
        while any(slot["is_processing"] for slot in self.report("/slots")):
            time.sleep(0.002)
        self.effects["cancel: a connection was closed"] += 1
        self.left.append(self.positions([*self.tokens.get(sequence, []), *tokens]))
        self._forget(number)

    def fork(self, source: int, target: int) -> None:
        """Another request will begin with the same tokens."""
        self.tokens[target] = list(self.tokens[source])

    def roll_back(self, sequence: int, n: int) -> bool:
        """The next request has fewer tokens of the last one."""
        del self.tokens[sequence][-n:]
        return True

    def save(self, sequence: int) -> tuple[list[int], str, list[int] | None]:
        """The slot that the sequence used last, in a file."""
        if sequence not in self.used:
            raise NotImplementedError("save: no slot had this sequence")
        name = f"{os.getpid()}-{next(_names)}.bin"
        self.files.append(_folder() / name)
        self.post(f"/slots/{self.used[sequence]}?action=save", {"filename": name})
        return list(self.tokens[sequence]), name, self.held.get(self.used[sequence])

    def load(self, sequence: int, saved: tuple[list[int], str, list[int] | None]) -> bool:
        """The file in the sequence's own slot."""
        tokens, name, held = saved
        self.post(f"/slots/{sequence % self.slots}?action=restore", {"filename": name})
        self.tokens[sequence] = list(tokens)
        self.used[sequence] = sequence % self.slots
        self.held[self.used[sequence]], self.kept[self.used[sequence]] = held, 0
        self.effects["load: a slot was restored from a file"] += 1
        return True

    def load_damaged(
        self, sequence: int, damage: str, saved: tuple[list[int], str, list[int] | None]
    ) -> bool:
        """A damaged copy of the file in the sequence's own slot.

        Raises:
            NotImplementedError: they are of another model without slots.
        """
        if len(saved) != 3:
            raise NotImplementedError("load_damaged: the next model is no server")
        part = f"{os.getpid()}-{next(_names)}.bin"
        self.files.append(_folder() / part)
        (_folder() / part).write_bytes(damaged((_folder() / saved[1]).read_bytes(), damage))
        self.held[sequence % self.slots] = None
        try:
            return self.load(sequence, (saved[0], part, None))
        except RuntimeError:
            return False

    def drop(self, sequence: int) -> bool:
        """Erase the slot that the sequence used last."""
        self.tokens.pop(sequence, None)
        if sequence in self.used:
            slot = self.used.pop(sequence)
            self.post(f"/slots/{slot}?action=erase", {})
            self.held.pop(slot, None)
        return True

    def length(self, sequence: int) -> int:
        """The client's count: a server reports none."""
        return len(self.tokens.get(sequence, ()))

    def close(self) -> None:
        """End the server, and remove its files."""
        self.server = None
        for file in self.files:
            file.unlink(missing_ok=True)


def _message(data: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(data)["error"]["message"])
    return data.decode(errors="replace")[:200]


def model_file(
    library: LlamaCpp, architecture: str, metadata: Mapping[str, Any], seed: int, weights: str
) -> Path:
    """A model of the architecture in a file, with a vocabulary that all releases read, and that ends no text.

    Raises:
        NotImplementedError: the library makes no such model.
    """
    # The last tokens are those of an infill.
    infill = {f"tokenizer.ggml.fim_{name}_token_id": 29 + at for at, name in enumerate(("pre", "suf", "mid"))}
    given = {**metadata, "tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": TEXTS, **infill}
    made = (
        library.model(architecture, given, seed, weights) if library.has("llama_model_save_to_file") else None
    )
    if made is None:
        raise NotImplementedError(f"no model with a vocabulary: {' '.join(library.log[-2:])}")
    path = folder_of_process("statecheck-gguf-") / f"{architecture}.gguf"
    library.call("llama_model_save_to_file", made, str(path).encode())
    return path


def new(model: Path, other: Path, projector: Path | None, given: Mapping[str, Any]) -> ServerContext:
    """A server with one thread.

    Args:
        other: a model with other weights, for drafts.
        projector: of images; None in a server without them.
        given: values of features of a server.

    Raises:
        NotImplementedError: embeddings need a micro-batch as large as the batch; the library's own program makes the batch smaller.
    """
    if given["embeddings"] and given["micro_batch"] < _BATCH:
        raise NotImplementedError("new: a server with embeddings has no smaller micro-batches")
    if given["reuse"] and given["cache_type"] in IN_BLOCKS:
        raise NotImplementedError("new: keys in blocks that are shifted are rounded a second time")
    if given["reuse"] and given["cache_type"] == "bf16":
        # A reuse shifts keys, and the library's rotation on a CPU ends the process for this type.
        raise NotImplementedError("new: keys of bf16 cannot be shifted on a CPU")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx, parameters.n_batch = 2048, _BATCH
    parameters.n_ubatch, parameters.n_parallel = given["micro_batch"], given["slots"]
    parameters.kv_unified = given["unified"]
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = parameters.n_threads_http = 1
    cache_type = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{given['cache_type'].upper()}")
    parameters.cache_type_k = parameters.cache_type_v = cache_type
    parameters.warmup = parameters.fit_params = False
    parameters.verbosity = -1
    parameters.embedding = given["embeddings"]
    parameters.n_ctx_checkpoints = given["checkpoints"]
    parameters.checkpoint_min_step = given["checkpoint_step"]
    parameters.cache_ram_mib, parameters.n_cache_reuse = given["prompt_cache"], given["reuse"]
    parameters.slot_save_path = f"{_folder()}{os.sep}"
    _speculate(parameters, given["speculation"], other if given["speculation"] == "other draft" else model)
    if projector is not None:
        parameters.mmproj.path, parameters.mmproj_use_gpu = str(projector), False
    made = ServerContext(xllamacpp.Server(parameters), given["slots"], given)
    if projector is not None:
        made.marker = made.report("/props")["media_marker"]
    return made


def _speculate(parameters: Any, kind: str, draft: Path) -> None:
    if kind == "none":
        return
    import xllamacpp

    types, speculative = xllamacpp.common_speculative_type, parameters.speculative
    if kind == "ngram":
        speculative.types = [types.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        speculative.ngram_simple.size_n, speculative.ngram_simple.size_m = 1, _DRAFTS
        speculative.ngram_simple.min_hits = 1
        return
    speculative.types = [types.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    speculative.draft.mparams.path = str(draft)
    speculative.draft.n_max, speculative.draft.p_min = _DRAFTS, 0.0


def _folder() -> Path:
    """Of files of slots, which servers of other processes read, too."""
    folder = Path(tempfile.gettempdir(), f"statecheck-slots-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    return folder


def _logarithms(answer: Any, excluded: Collection[int]) -> list[float]:
    """By token; those that no generation chooses are as improbable as the least probable one."""
    found = {entry["id"]: entry["logprob"] for entry in answer["completion_probabilities"][0]["top_logprobs"]}
    found |= dict.fromkeys(excluded, min(found.values()))
    return [found[token] for token in range(VOCABULARY)]
