"""ONNX Runtime GenAI (`pip install onnxruntime-genai onnx`) as a port of sequences: a window, a state and an attention, all in ONNX.

python -m statecheck fuzz --subject examples.onnxruntime_genai_port --only sequences --budget 1m
"""

import json
import pathlib
import tempfile
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime_genai as genai

from statecheck.sequences import StateContext, drop, one_model

__all__ = ["drop"]
STATECHECK_SEQUENCES = 1
RELEASE = genai.__version__
GRAPH = """<ir_version: 11, opset_import: ["" : 23]>
hybrid (int64[batch, new] input_ids, int64[batch, new] position_ids, int64[batch, total] attention_mask,
  float[batch, 16, 3] past__0__conv, float[batch, 1, 16, 16] past__0__recurrent,
  float[batch, 1, old, 16] past__1__key, float[batch, 1, old, 16] past__1__value)
=> (float[batch, new, 32] logits, float[batch, 16, 3] present__0__conv, float[batch, 1, 16, 16] present__0__recurrent,
  float[batch, 1, total, 16] present__1__key, float[batch, 1, total, 16] present__1__value) {
  one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>() first = Constant<value_ints = [-3]>()
  end = Constant<value_ints = [1000]>() token = Gather(embedding, input_ids) place = Gather(places, position_ids)
  x = Add(token, place) columns = Transpose<perm = [0, 2, 1]>(x) window = Concat<axis = 2>(past__0__conv, columns)
  present__0__conv = Slice(window, first, end, two)
  convolved = Conv<group = 16>(window, kernel) mixed = Transpose<perm = [0, 2, 1]>(convolved)
  q = MatMul(mixed, wq) wide_k = MatMul(mixed, wk) k = Tanh(wide_k) v = MatMul(mixed, wv)
  state = Squeeze(past__0__recurrent, one)
  last, seen = Scan<num_scan_inputs = 3, scan_input_axes = [1, 1, 1], scan_output_axes = [1], body = step
    (float[batch, 16, 16] s, float[batch, 16] qt, float[batch, 16] kt, float[batch, 16] vt)
    => (float[batch, 16, 16] after, float[batch, 16] y) {
      decay = Constant<value_float = 0.8>() axis1 = Constant<value_ints = [1]>() axis2 = Constant<value_ints = [2]>()
      kept = Mul(s, decay) row = Unsqueeze(kt, axis2) column = Unsqueeze(vt, axis1) outer = MatMul(row, column)
      after = Add(kept, outer) asked = Unsqueeze(qt, axis1) found = MatMul(asked, after) y = Squeeze(found, axis1)
    }>(state, q, k, v)
  present__0__recurrent = Unsqueeze(last, one) h = Add(x, seen)
  flat_q = MatMul(h, aq) flat_k = MatMul(h, ak) flat_v = MatMul(h, av)
  head_q = Unsqueeze(flat_q, one) head_k = Unsqueeze(flat_k, one) head_v = Unsqueeze(flat_v, one)
  read, present__1__key, present__1__value =
    Attention<is_causal = 1>(head_q, head_k, head_v, , past__1__key, past__1__value)
  flat = Squeeze(read, one) out = Add(h, flat) logits = MatMul(out, head)
}"""
WEIGHTS: dict[str, tuple[int, ...]] = dict.fromkeys(("wq", "wk", "wv", "aq", "ak", "av"), (16, 16))
WEIGHTS |= {"embedding": (32, 16), "places": (512, 16), "kernel": (16, 1, 4), "head": (16, 32)}
STATES = ("key", "value", "conv", "recurrent")
SIZES = {"head_size": 16, "hidden_size": 16, "num_attention_heads": 1, "num_key_value_heads": 1}


models, features = one_model("hybrid", chunk=(512, 1, 3), snapshot=(False, True))


@cache
def _model(seed: int) -> Any:
    made, chance = onnx.parser.parse_model(GRAPH), np.random.default_rng(seed)
    for name, shape in WEIGHTS.items():
        drawn = chance.normal(0, 0.5, shape).astype(np.float32)
        drawn[:, 31:] = 0  # the token that ends and pads a text is never the best one
        made.graph.initializer.append(onnx.numpy_helper.from_array(drawn, name))
    decoder = {"filename": "model.onnx", "num_hidden_layers": 2, **SIZES}
    decoder["inputs"] = {f"past_{kind}_names": f"past__%d__{kind}" for kind in STATES}
    decoder["outputs"] = {f"present_{kind}_names": f"present__%d__{kind}" for kind in STATES}
    decoder["session_options"] = {"intra_op_num_threads": 1, "provider_options": []}
    config = {"type": "qwen3_5_text", "vocab_size": 32, "context_length": 512, "decoder": decoder}
    config |= {"bos_token_id": 31, "eos_token_id": 31, "pad_token_id": 31}
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(made, f"{folder}/model.onnx")
        pathlib.Path(folder, "genai_config.json").write_text(json.dumps({"model": config, "search": {}}))
        return genai.Model(folder)


def new(model: str, seed: int, *, chunk: int = 512) -> StateContext:  # noqa: ARG001 - there is one
    parameters = genai.GeneratorParams(_model(seed))
    parameters.set_search_options(max_length=512, chunk_size=chunk)
    return StateContext((_model(seed), parameters))


def extend(context: Any, rows: list[tuple[int, list[int]]], *, snapshot: bool = False) -> list[Any]:
    logits = []
    for sequence, tokens in rows:
        if sequence not in context.states:
            context.states[sequence] = genai.Generator(*context.model)
        context.states[sequence].append_tokens(tokens)
        logits.append(context.states[sequence].get_logits().ravel())
        if snapshot:
            context.states[sequence].snapshot_state()
    return logits


def roll_back(context: Any, sequence: int, n: int) -> bool:
    generator = context.states[sequence]
    try:
        generator.rewind_to(generator.token_count() - n)
    except RuntimeError as error:
        if "snapshot" in str(error):
            return False  # the length has changed all the same, which is a defect
        raise
    return True


def generate(context: Any, sequence: int, n: int) -> list[int]:
    generator, tokens = context.states[sequence], []
    for _ in range(n):
        generator.generate_next_token()
        tokens.append(int(generator.get_next_tokens()[0]))
    generator.get_logits()  # or else `append_tokens` leaves the last token out
    return tokens


def length(context: Any, sequence: int) -> int:
    return context.states[sequence].token_count() if sequence in context.states else 0
