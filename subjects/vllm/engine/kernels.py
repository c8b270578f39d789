"""The recurrent layer of the release itself in its engine: the layer's own code hands the metadata to the release's kernels, on real numbers.

The layer is made without its constructor, and without its projections: its inputs are those of `oracle/recurrences/layer.py`, by token. Each output is
held against the recurrence over the request's tokens up to it, without an engine.
"""

import functools
import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.named_states import UNKNOWN, advanced
from oracle.lifecycle.observed import GroupAccess
from oracle.recurrences.bounds import Near
from oracle.recurrences.layer import CHANNELS, HEADS, KEYS, TYPES, VALUES, WIDTH, Layer, Prefix
from subjects.kit.objects import bare
from subjects.vllm.engine.forward import LiveForward
from subjects.vllm.engine.states import LiveLayer, LiveMemory
from subjects.vllm.recurrences import launch_of_defaults
from subjects.vllm.release import find

_LAYERS = "vllm.model_executor.layers.mamba"


_layer = functools.lru_cache(8)(Layer)
"""The recurrence of a kind of layer, with these weights."""


def _released(layer: Layer, name: str, states: list[torch.Tensor], num_spec: int) -> Any:
    """The release's layer with these weights, as far as its recurrence goes."""
    type_ = getattr(torch, TYPES[layer.kind][0])
    taps = torch.tensor(layer.taps, dtype=type_)
    values, inner = VALUES[layer.kind], HEADS * VALUES[layer.kind]
    of_heads = {key: torch.tensor(numbers) for key, numbers in layer.heads.items()}
    common = {
        "prefix": name,
        "kv_cache": tuple(states),
        "activation": None,
        "conv1d": SimpleNamespace(weight=taps[:, None], bias=None),
        "dt_bias": of_heads["dt_bias"],
        "tp_size": 1,
        "num_spec": num_spec,
    }
    if layer.kind == "mamba2":
        return bare(
            find(f"{_LAYERS}.mamba_mixer2:MambaMixer2"),
            **common,
            conv_weights=taps,
            A=of_heads["A"],
            D=of_heads["D"],
            tped_intermediate_size=0,
            tped_conv_size=CHANNELS["mamba2"],
            tped_dt_size=HEADS,
            split_hidden_states_B_C_fn=lambda mixed: torch.split(mixed, [inner, KEYS, KEYS], dim=-1),
            cache_config=SimpleNamespace(),
            use_replayssm=False,
            num_heads=HEADS,
            head_dim=values,
            n_groups=1,
            conv_kernel_size=WIDTH,
            ssm_state_size=KEYS,
            is_blackwell=False,
        )
    module = f"{_LAYERS}.gdn.qwen_gdn_linear_attn"
    chunks = find(f"{module}:ChunkGatedDeltaRule").forward_native
    return bare(
        find(f"{module}:QwenGatedDeltaNetAttention"),
        **common,
        A_log=of_heads["A"],
        num_k_heads=1,
        num_v_heads=HEADS,
        head_k_dim=KEYS,
        head_v_dim=values,
        key_dim=KEYS,
        value_dim=inner,
        enable_packed_recurrent_decode=True,
        chunk_gated_delta_rule=lambda **given: chunks(None, **given),
    )


class KernelForward(LiveForward):
    """As `LiveForward`, with the release's layer as the recurrent one, of a batch with so many tokens of padding."""

    def __init__(self, padding: int, memory: LiveMemory, *batch: Any) -> None:
        super().__init__(memory, *batch)
        self.padding = padding

    def recurrent(self, group: int, layers: Sequence[LiveLayer], metadata: Any) -> None:
        """Run the layer, and hold its outputs against the recurrence over the tokens that attention has seen."""
        (released,) = layers
        settings, weights = self.memory.settings, self.memory.weights
        layer = _layer(released.kind, weights)
        prefixes = self.memory.prefixes.setdefault(weights, {0: layer.empty()})
        outputs = self._run(_released(layer, "layer", released.states, settings.num_spec), layer, metadata)
        first = 0
        for row in self.rows:
            begins = state = row.keys[0][-1] if row.keys[0] else 0
            places = tuple(range(first, first + len(row.tokens)))
            for at, token in enumerate(row.tokens):
                before, state = prefixes.get(state), advanced(state, token, weights)
                self.states[first + at].add(state)
                # A state that attention made up has no tokens, which is said of attention.
                if before is not None:
                    prefixes[state] = prefixes.get(state) or layer.advance(before, token)
                    row.wrong += _wrong(group, at, outputs[first + at], prefixes[state].outputs)
            if row.wrong:
                read = self._read_instead(layer, prefixes, row.tokens, outputs[first : first + len(places)])
                if read not in (begins, UNKNOWN):
                    begins, row.wrong = read, ()
            row.groups.append(GroupAccess(group, True, (0, 0), (), (begins,), (), places))
            first += len(row.tokens)

    def _read_instead(
        self, layer: Layer, prefixes: dict[int, Prefix], tokens: Sequence[int], outputs: Sequence[list[float]]
    ) -> int:
        """The state behind which a layer makes these outputs of the tokens, if it is one that it has gone through."""
        for state, prefix in prefixes.items():
            after = prefix
            for token, found in zip(tokens, outputs, strict=True):
                after = layer.advance(after, token)
                if _wrong(0, 0, found, after.outputs):
                    break
            else:
                return state
        return UNKNOWN

    def _run(self, released: Any, layer: Layer, metadata: Any) -> list[list[float]]:
        """The layer's output of each token of the batch, by head and value."""
        type_ = getattr(torch, TYPES[layer.kind][0])

        def numbers(of_token: Any, width: int) -> torch.Tensor:
            rows = [of_token(token) for token in self.token_ids] + [[float("nan")] * width] * self.padding
            return torch.tensor(rows, dtype=type_)

        inputs = numbers(layer.inputs, CHANNELS[layer.kind])
        controls = numbers(layer.controls, HEADS if layer.kind == "mamba2" else 2 * HEADS)
        context = SimpleNamespace(attn_metadata={released.prefix: metadata})
        with find("vllm.forward_context:override_forward_context")(context), launch_of_defaults(inputs, KEYS):
            found = torch.zeros(len(inputs), HEADS, VALUES[layer.kind], dtype=type_)
            if layer.kind == "mamba2":
                _use_triton()
                released.conv_ssm_forward(torch.cat([inputs, controls], dim=1), found.flatten(1))
            else:
                times, writes = controls.split(HEADS, dim=1)
                released._forward_core(inputs, writes.contiguous(), times.contiguous(), found)
        rows: list[list[float]] = found.flatten(1).tolist()
        return rows


def _wrong(
    group: int, at: int, found: Sequence[float], expected: Sequence[Near]
) -> tuple[tuple[int, int, float, Near], ...]:
    pairs = zip(found, expected, strict=True)
    # Not `>`: a NaN is wrong.
    return tuple(
        (group, at, value, near) for value, near in pairs if not abs(value - near.value) <= near.bound
    )


def _use_triton() -> None:
    """The release takes another backend where its platform is a CPU."""
    dispatch = vars(importlib.import_module(f"{_LAYERS}.ops.ssu_dispatch"))
    if dispatch["_mamba_ssu_backend"] is None:
        config = SimpleNamespace(enable_stochastic_rounding=False, stochastic_rounding_philox_rounds=0)
        dispatch["_mamba_ssu_backend"] = dispatch["TritonSSUBackend"](config)
