"""fla (`pip install --no-deps flash-linear-attention fla-core einops`; transformers) as a port of sequences: its models, with kernels on a CPU.

python -m statecheck fuzz --subject examples.fla_port --only sequences --budget 2m
"""

import importlib
import inspect
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from statecheck.kernels import triton_mode
from statecheck.sequences import StateContext, drop, fork, load, save

triton_mode.prepare("cpu")
if not torch.cuda.is_available():
    # Or else fla takes the driver for kernels without a GPU for a GPU.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("fla.utils.hardware", "fla.utils"):
            found = importlib.import_module(name)
            vars(found).update(device="cpu", device_name="cpu", device_torch_lib=torch.cpu)
fla = importlib.import_module("fla.models")

__all__ = ["drop", "fork", "load", "save"]
STATECHECK_SEQUENCES = 1
RELEASE = version("flash-linear-attention")
torch.set_num_threads(1)
MODELS = ("ABC", "GatedDeltaNet", "GLA", "DeltaNet", "KDA", "HGRN", "HGRN2", "RetNet", "Comba", "LightNet")
SIZES = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 16, "num_hidden_layers": 2, "num_heads": 2}
SIZES |= {"head_dim": 16, "expand_k": 1, "expand_v": 1, "expand_ratio": 16, "max_position_embeddings": 128}
SIZES |= {"fuse_norm": False, "fuse_swiglu": False, "fuse_cross_entropy": False}


def models() -> Sequence[str]:
    return MODELS


def features(model: str) -> dict[str, Sequence[Any]]:
    modes = ("chunk", "fused_recurrent")
    taken = inspect.signature(getattr(fla, f"{model}Config")).parameters
    return {"mode": modes if "attn_mode" in taken else ("",)}


@cache
def _model(model: str, seed: int, mode: str) -> Any:
    kind = getattr(fla, f"{model}Config")
    given = {**SIZES, **({"attn_mode": mode} if mode else {})}
    configuration = kind(**{key: given[key] for key in inspect.signature(kind).parameters if key in given})
    torch.manual_seed(seed)
    made = getattr(fla, f"{model}ForCausalLM")(configuration).eval()
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() == 2:
                weights.normal_(0, 0.25)  # or else the history hardly matters
    return made


def new(model: str, seed: int, *, mode: str = "") -> StateContext:
    return StateContext(_model(model, seed, mode or features(model)["mode"][0]))


@torch.no_grad()
def extend(context: StateContext, rows: Sequence[tuple[int, Sequence[int]]]) -> list[Any]:
    logits = []
    for sequence, tokens in rows:
        seen = context.model(
            torch.tensor([list(tokens)]), past_key_values=context.states.get(sequence), use_cache=True
        )
        context.states[sequence] = seen.past_key_values
        logits.append(seen.logits[0, -1].numpy())
    return logits


def length(context: StateContext, sequence: int) -> int:
    return context.states[sequence].get_seq_length() if sequence in context.states else 0
