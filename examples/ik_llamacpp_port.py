"""ik_llama.cpp (`pip install ik-llama-cpp-python gguf`) as a port of sequences: Qwen 3.5, from a file of random weights.

python -m statecheck fuzz --subject examples.ik_llamacpp_port --only sequences --budget 1m
"""
# ruff: noqa: D103 - docs/sequences.md has a sentence about each function.

import ctypes as c
import tempfile
from functools import cache
from importlib.metadata import version
from typing import Any

import ik_llama_cpp._ctypes_api as llama
import numpy as np
from gguf import GGUFWriter

from statecheck.sequences import StateContext, one_model

STATECHECK_SEQUENCES = 1
ISOLATED = True  # An assertion of the library ends the process; where gdb is installed, that takes seconds.
RELEASE = version("ik-llama-cpp-python")
VOCABULARY, ROOM = 32, 512
# Heads of 64 have a kernel of their own. Every fourth layer is attention, the others have states.
SIZES = """block_count=4 context_length=512 embedding_length=64 vocab_size=32 feed_forward_length=48
attention.head_count=4 attention.head_count_kv=2 attention.key_length=64 attention.value_length=64
rope.dimension_count=64 ssm.conv_kernel=4 ssm.inner_size=256 ssm.state_size=64 ssm.time_step_rank=4 ssm.group_count=2"""
ALWAYS = "attn_norm=64 post_attention_norm=64 ffn_gate=48,64 ffn_up=48,64 ffn_down=64,48"
ATTENTION = "attn_q=512,64 attn_k=128,64 attn_v=128,64 attn_output=64,256 attn_q_norm=64 attn_k_norm=64"
STATE = """attn_qkv=512,64 attn_gate=256,64 ssm_conv1d=512,4 ssm_dt=4 ssm_a=4
ssm_alpha=4,64 ssm_beta=4,64 ssm_norm=64 ssm_out=64,256"""


def _call(name: str, result: Any, context: Any, *values: Any) -> Any:  # those that the binding leaves out
    types = [{int: c.c_int, bytes: c.c_char_p}.get(type(value), type(value)) for value in values]
    return c.CFUNCTYPE(result, c.c_void_p, *types)((f"llama_{name}", llama._lib))(context.model, *values)


models, features = one_model("qwen35", n_ubatch=(512, 1, 3), graph_reuse=(True, False), flash=(False, True))


@cache
def _model(model: str, seed: int) -> Any:
    chance = np.random.default_rng(seed)
    tensors = ["token_embd=32,64", "output=32,64", "output_norm=64"]
    for layer, of_kind in enumerate((STATE, STATE, STATE, ATTENTION)):
        tensors += [f"blk.{layer}.{tensor}" for tensor in f"{ALWAYS} {of_kind}".split()]
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        writer = GGUFWriter(file.name, model)
        writer.add_tokenizer_model("no_vocab")
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_array(f"{model}.rope.dimension_sections", [32, 0, 0, 0])
        for name, number in (size.split("=") for size in SIZES.split()):
            writer.add_uint32(f"{model}.{name}", int(number))
        for name, shape in (tensor.split("=") for tensor in tensors):
            drawn = chance.normal(float(name.endswith("norm")), 0.3, tuple(map(int, shape.split(","))))
            ending = {"ssm_a": "", "ssm_dt": ".bias"}.get(name.rpartition(".")[2], ".weight")
            writer.add_tensor(name + ending, (drawn if ending else -abs(drawn)).astype(np.float32))
        for part in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{part}_to_file")()
        writer.close()
        return llama.llama_model_load_from_file(file.name.encode(), llama.llama_model_default_params())


def new(model: str, seed: int, *, n_ubatch: int = 512, graph_reuse: bool = True, flash: bool = False) -> Any:
    given = llama.llama_context_default_params()
    given.n_ctx, given.n_batch, given.n_seq_max = 4 * ROOM, ROOM, 4
    given.n_threads = given.n_threads_batch = 1
    given.n_ubatch, given.graph_reuse, given.flash_attn = n_ubatch, graph_reuse, flash
    return StateContext(llama.llama_init_from_model(_model(model, seed), given))  # `states` are lengths


def extend(context: Any, rows: list[tuple[int, list[int]]]) -> list[list[float]]:
    batch, lasts = llama.llama_batch_init(ROOM, 0, 4), []
    for sequence, tokens in rows:
        for token in tokens:
            at, position = batch.n_tokens, context.states.get(sequence, 0)
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, position, 1, 1
            batch.seq_id[at][0], context.states[sequence] = sequence, position + 1
            batch.n_tokens += 1
        lasts.append(batch.n_tokens - 1)
    assert llama.llama_decode(context.model, batch) == 0
    llama.llama_batch_free(batch)
    return [llama.llama_get_logits_ith(context.model, last)[:VOCABULARY] for last in lasts]


def fork(context: Any, source: int, target: int) -> None:
    drop(context, target)
    _call("kv_cache_seq_cp", None, context, source, target, -1, -1)
    context.states[target] = context.states[source]


def roll_back(context: Any, sequence: int, n: int) -> Any:
    done = _call("kv_cache_seq_rm", c.c_bool, context, sequence, context.states[sequence] - n, -1)
    context.states[sequence] -= n * done
    return done


def drop(context: Any, sequence: int) -> Any:
    context.states.pop(sequence, None)
    return _call("kv_cache_seq_rm", c.c_bool, context, sequence, -1, -1)


def save(context: Any, sequence: int) -> tuple[int, bytes]:
    data = c.create_string_buffer(_call("state_seq_get_size", c.c_size_t, context, sequence, 0))
    _call("state_seq_get_data", c.c_size_t, context, data, c.c_size_t(len(data)), sequence, 0)
    return context.states[sequence], data.raw


def load(context: Any, sequence: int, saved: tuple[int, bytes]) -> bool:
    size = c.c_size_t(len(saved[1]))
    if done := bool(_call("state_seq_set_data", c.c_size_t, context, saved[1], size, sequence, 0)):
        context.states[sequence] = saved[0]
    return done


def close(context: Any) -> None:
    llama.llama_free(context.model)
