"""The recurrent layer of the release itself in its engine: the layer's own code hands the metadata to the release's kernels, on real numbers.

The layer is made without its constructor, and without its projections: its inputs are those of `oracle/recurrences/layer.py`, by token. Each output is
held against the recurrence over the request's tokens up to it, without an engine.

The scan of Mamba-1's prompts is a kernel in CUDA, which no CPU runs. In its place stands the release's Triton kernel for XPUs, which takes the same arguments.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.named_states import UNKNOWN, advanced
from oracle.lifecycle.observed import GroupAccess
from oracle.recurrences.bounds import Near
from oracle.recurrences.layer import HEADS, KEYS, WIDTH, Layer, Prefix
from subjects.kit.objects import bare
from subjects.vllm.engine.forward import LiveForward
from subjects.vllm.engine.states import LiveLayer, LiveMemory
from subjects.vllm.recurrences import launch_of_defaults
from subjects.vllm.release import find

_LAYERS = "vllm.model_executor.layers.mamba"
_ROUNDING = {"enable_stochastic_rounding": False, "stochastic_rounding_philox_rounds": 0}


_layer = functools.lru_cache(8)(Layer)
"""The recurrence of a kind of layer, with these weights."""


class _Projection:
    """A projection of a layer, which hands on what it gets."""

    def __init__(self, function: Callable[[Any], Any] = lambda given: given, bias: Any = None) -> None:
        self.function, self.bias = function, bias

    def __call__(self, given: Any) -> tuple[Any, None]:
        return self.function(given), None


def _mamba1(parts: dict[str, Any], layer: Layer, x: Any, gate: Any, out: Any) -> None:
    values = layer.kind.values
    convolution, temporal = parts["kv_cache"]
    weights = {name: torch.tensor(numbers) for name, numbers in layer.heads.items()}
    mixer = bare(
        find(f"{_LAYERS}.mamba_mixer:MambaMixer"),
        **parts | {"kv_cache": (convolution, temporal.squeeze(1))},
        A=weights["A"].unflatten(0, (values, KEYS)),
        D=weights["D"],
        in_proj=_Projection(),
        x_proj=_Projection(lambda mixed: torch.cat([mixed, mixed], dim=1)),
        dt_proj=_Projection(lambda times: times / 4, weights["dt_bias"]),
        out_proj=_Projection(),
        time_step_rank=values,
        ssm_state_size=KEYS,
        use_rms_norm=False,
        is_lora_enabled=False,
        cache_config=SimpleNamespace(),
    )
    mixer.forward_impl(torch.cat([x, gate], dim=1), out.flatten(1))


def _mamba2(parts: dict[str, Any], layer: Layer, x: Any, times: Any, out: Any) -> None:
    values, inner = layer.kind.values, HEADS * layer.kind.values
    rings = parts["kv_cache"][2:]
    mixer = bare(
        find(f"{_LAYERS}.mamba_mixer2:MambaMixer2"),
        **parts,
        conv_weights=torch.tensor(layer.taps),
        A=torch.tensor(layer.heads["A"]),
        D=torch.tensor(layer.heads["D"]),
        tped_intermediate_size=0,
        tped_conv_size=layer.kind.channels,
        tped_dt_size=HEADS,
        split_hidden_states_B_C_fn=lambda mixed: torch.split(mixed, [inner, KEYS, KEYS], dim=-1),
        cache_config=SimpleNamespace(),
        use_replayssm=bool(rings),
        replayssm_buffer_len=rings[1].shape[2] if rings else None,
        mamba_config=SimpleNamespace(backend="triton", **_ROUNDING),
        num_heads=HEADS,
        head_dim=values,
        n_groups=1,
        conv_kernel_size=WIDTH,
        ssm_state_size=KEYS,
        is_blackwell=False,
    )
    mixer.conv_ssm_forward(torch.cat([x, times], dim=1), out.flatten(1))


def _gdn(parts: dict[str, Any], layer: Layer, x: Any, controls: Any, out: Any) -> None:
    module = f"{_LAYERS}.gdn.qwen_gdn_linear_attn"
    chunks = find(f"{module}:ChunkGatedDeltaRule").forward_native
    attention = bare(
        find(f"{module}:QwenGatedDeltaNetAttention"),
        **parts,
        A_log=torch.tensor(layer.heads["A"]),
        num_k_heads=1,
        num_v_heads=HEADS,
        head_k_dim=KEYS,
        head_v_dim=KEYS,
        key_dim=KEYS,
        value_dim=HEADS * KEYS,
        enable_packed_recurrent_decode=True,
        chunk_gated_delta_rule=lambda **given: chunks(None, **given),
    )
    times, writes = controls.split(HEADS, dim=1)
    attention._forward_core(x, writes.contiguous(), times.contiguous(), out)


class _OnDevice(torch.Tensor):
    """A tensor that a kernel of the release is launched on, where its launcher refuses tensors of a CPU."""

    is_cuda = True
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def _kda(parts: dict[str, Any], layer: Layer, x: Any, controls: Any, out: Any) -> None:
    convolution, temporal = parts["kv_cache"]
    attention = bare(
        find(f"{_LAYERS}.gdn.kimi_gdn_linear_attn:KimiGatedDeltaNetAttention"),
        **parts | {"kv_cache": (convolution, temporal.as_subclass(_OnDevice))},
        A_log=torch.tensor(layer.heads["A"]),
        local_num_heads=HEADS,
        head_dim=KEYS,
        local_projection_size=HEADS * KEYS,
        gate_lower_bound=None,
        o_norm=lambda outputs, gate: outputs,
    )
    times, writes = controls.split([HEADS * KEYS, HEADS], dim=1)
    attention._forward(x, times.unflatten(1, (HEADS, KEYS))[None], None, writes[None], out[None])


def _short_conv(parts: dict[str, Any], layer: Layer, x: Any, gates: Any, out: Any) -> None:  # noqa: ARG001 - as the others
    convolution = bare(
        find(f"{_LAYERS}.short_conv:ShortConv"),
        **parts,
        conv=parts["conv1d"],
        in_proj=_Projection(),
        out_proj=_Projection(),
    )
    convolution.forward_cuda(torch.cat([gates, x], dim=1), out.flatten(1))


_RUN = {"gdn": _gdn, "mamba2": _mamba2, "kda": _kda, "mamba1": _mamba1, "short_conv": _short_conv}
"""By kind, a function that makes the release's layer, as far as its recurrence goes, and runs it on a batch."""


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
        outputs = self._run(layer, released.states, settings.num_spec, metadata)
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

    def _run(
        self, layer: Layer, states: Sequence[torch.Tensor], num_spec: int, metadata: Any
    ) -> list[list[float]]:
        """The layer's output of each token of the batch, by head and value."""
        kind, type_ = layer.kind, getattr(torch, layer.kind.stored)

        def numbers(of_token: Any, width: int) -> torch.Tensor:
            rows = [of_token(token) for token in self.token_ids] + [[float("nan")] * width] * self.padding
            return torch.tensor(rows, dtype=type_)

        inputs, controls = numbers(layer.inputs, kind.channels), numbers(layer.controls, kind.controls)
        # The rows of all heads of a short convolution are its channels.
        found = torch.zeros(len(inputs), max(kind.heads, 1), kind.values, dtype=type_)
        parts = {
            "prefix": "layer",
            "kv_cache": tuple(states),
            "activation": kind.activation,
            "conv1d": SimpleNamespace(weight=torch.tensor(layer.taps, dtype=type_)[:, None], bias=None),
            "dt_bias": torch.tensor(layer.heads["dt_bias"]),
            "tp_size": 1,
            "num_spec": num_spec,
        }
        context = SimpleNamespace(attn_metadata={parts["prefix"]: metadata})
        with find("vllm.forward_context:override_forward_context")(context), launch_of_defaults(inputs, KEYS):
            _use_triton()
            _RUN[layer.name](parts, layer, inputs, controls, found)
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


@functools.cache
def _use_triton() -> None:
    """Let layers take kernels in Triton, where the release takes another backend on a CPU, and has no Triton kernel for CUDA."""
    dispatch = vars(importlib.import_module(f"{_LAYERS}.ops.ssu_dispatch"))
    dispatch["_mamba_ssu_backend"] = dispatch["TritonSSUBackend"](SimpleNamespace(**_ROUNDING))
    for name in ("flash_attn_interface", "rotary"):
        # What the release's module of XPUs wants beside its own kernels.
        stand_in = SimpleNamespace(flash_attn_varlen_func=None, apply_rotary_emb=None)
        sys.modules.setdefault(f"vllm_xpu_kernels.{name}", stand_in)  # type: ignore[arg-type]
    scan = vars(importlib.import_module(f"{_LAYERS}.ops.mamba_ssm"))
    scan["ops"] = find("vllm._xpu_ops:xpu_ops")
