"""Defects planted in copies of the model and cache files of transformers and mlx-lm, and how many scenarios it takes to find each.

    .transformers/5.24.0/bin/python -m tests.breakages.sequences
    .mlx_lm/0.32.2/bin/python -m tests.breakages.sequences

prints the table of the library whose environment it is; `--only <word>` tries those whose name has the word. Each is tried in a process of its own, in
which the module is loaded from a changed copy, on the models that use it and that are correct without it. The law knows nothing of them.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.breakages.release import PlantedDefect, planted, trials_of
from tests.breakages.scenarios import print_table

MAX_EXAMPLES = 400
_CORRECT = "falcon_h1,granitemoehybrid,kimi_linear,olmo_hybrid,qwen3_next"
_CACHES, _GENERATION = "transformers.cache_utils", "transformers.generation.utils"
_MASKED = "hidden_states = apply_mask_to_padding_states(hidden_states, attention_mask)\n"
_MASKED_CONV = "apply_mask_to_padding_states(hidden_states_B_C.transpose(1, 2), attention_mask)\n"


def _model(name: str) -> str:
    return f"transformers.models.{name}.modeling_{name}"


def _of(
    models: str, property_id: str, defects: dict[str, dict[str, tuple[str, str]]]
) -> tuple[PlantedDefect, ...]:
    release = "0.32.2" if next(iter(defects)).startswith("mlx_lm") else "5.24.0"
    return planted(defects, release, property_id, models)


TRANSFORMERS = (
    *_of(
        _CORRECT,
        "sequences/pieces",
        {
            _CACHES: {
                "a recurrent state is not carried over": (
                    "self.recurrent_states[state_idx].copy_(recurrent_states)\n",
                    "self.recurrent_states[state_idx].zero_()\n",
                ),
                "the window of the convolution is a token too early": (
                    "self.conv_states[state_idx].copy_(full_conv_states[..., -self.conv_kernel_size[state_idx] :])\n",
                    "self.conv_states[state_idx].copy_(full_conv_states.roll(1, -1)[..., -self.conv_kernel_size[state_idx] :])\n",
                ),
                "the window of a short prompt is padded behind it": (
                    "torch.nn.functional.pad(full_conv_states, (padding_length, 0), value=0)\n",
                    "torch.nn.functional.pad(full_conv_states, (0, padding_length), value=0)\n",
                ),
            }
        },
    ),
    *_of(
        _CORRECT,
        "sequences/reorder",
        {
            _CACHES: {
                "a reordering leaves the windows of convolutions as they are": (
                    "self.conv_states[i] = self.conv_states[i].index_select(0, beam_idx.to(self.device))\n",
                    "self.conv_states[i] = self.conv_states[i][: len(beam_idx)]\n",
                ),
                "a reordering leaves recurrent states as they are": (
                    "self.recurrent_states[i] = self.recurrent_states[i].index_select(0, beam_idx.to(self.device))\n",
                    "self.recurrent_states[i] = self.recurrent_states[i][: len(beam_idx)]\n",
                ),
            }
        },
    ),
    *_of(
        "falcon_h1",
        "sequences/reorder",
        {
            _CACHES: {
                "a reordering of a layer with a state and attention leaves its keys as they are": (
                    "        DynamicLayer.reorder_cache(self, beam_idx)\n",
                    "        self.keys, self.values = self.keys[: len(beam_idx)], self.values[: len(beam_idx)]\n",
                ),
            }
        },
    ),
    *_of(
        "lfm2",
        "sequences/roll-back",
        {
            _CACHES: {
                "a rollback leaves the window a token too far": (
                    "..., -tokens_to_remove - self.conv_kernel_size[i] : -tokens_to_remove\n",
                    "..., -tokens_to_remove - self.conv_kernel_size[i] + 1 : -tokens_to_remove + 1 or None\n",
                ),
                "a crop of a recorded past removes a token too many": (
                    "..., -tokens_to_remove - self.conv_kernel_size[i] : -tokens_to_remove\n",
                    "..., -tokens_to_remove - 1 - self.conv_kernel_size[i] : -tokens_to_remove - 1\n",
                ),
                "a rollback removes the first keys": (
                    "self.keys = self.keys[..., : -abs(tokens_to_remove), :]\n",
                    "self.keys = self.keys[..., abs(tokens_to_remove) :, :]\n",
                ),
            }
        },
    ),
    *_of(
        _CORRECT,
        "sequences/drop",
        {
            _CACHES: {
                "a cache that is reset keeps its states": (
                    "                self.recurrent_states[i].zero_()\n            self.has_previous_state[i] = False\n",
                    "                pass\n",
                ),
            }
        },
    ),
    *_of(
        "granitemoehybrid",
        "sequences/pieces",
        {
            _model("granitemoehybrid"): {
                "the scan of several tokens begins with an empty state": (
                    "initial_states=recurrent_state,\n",
                    "initial_states=None,\n",
                ),
                "the window is not read behind a prompt": (
                    "hidden_states_B_C = cache.update_conv_state(\n",
                    "_ = cache.update_conv_state(\n",
                ),
            }
        },
    ),
    *_of(
        "bamba",
        "sequences/batches",
        {
            _model("bamba"): {
                "padding enters the convolution": (_MASKED, "hidden_states = hidden_states + 0\n"),
            }
        },
    ),
    *_of(
        "falcon_h1",
        "sequences/batches",
        {
            _model("falcon_h1"): {
                "padding enters the scan": (_MASKED_CONV, "hidden_states_B_C.transpose(1, 2)\n"),
            }
        },
    ),
    *_of(
        "mamba2",
        "sequences/pieces",
        {
            _model("mamba2"): {
                "a layer reads the first layer's state": (
                    "recurrent_state = cache.get_recurrent_state(self.layer_idx, state_idx=0)\n",
                    "recurrent_state = cache.get_recurrent_state(0, state_idx=0)\n",
                ),
                "a layer stores its state in the next one's place": (
                    "cache.update_recurrent_state(final_state, layer_idx=self.layer_idx)\n",
                    "cache.update_recurrent_state(final_state, layer_idx=(self.layer_idx + 1) % len(cache.layers))\n",
                ),
            }
        },
    ),
    *_of(
        "qwen3_next",
        "sequences/batches",
        {
            _model("qwen3_next"): {
                "rows of a batch exchange their states": (
                    "cache.update_recurrent_state(last_recurrent_state, self.layer_idx)\n",
                    "cache.update_recurrent_state(last_recurrent_state.roll(1, 0), self.layer_idx)\n",
                ),
                "padding is not masked": (_MASKED, "pass\n"),
            }
        },
    ),
    *_of(
        "olmo_hybrid",
        "sequences/pieces",
        {
            _model("olmo_hybrid"): {
                "the state is stored for prompts only": (
                    "cache.update_recurrent_state(last_recurrent_state, self.layer_idx)\n",
                    "(conv_state is None) and cache.update_recurrent_state(last_recurrent_state, self.layer_idx)\n",
                ),
            }
        },
    ),
    *_of(
        "kimi_linear",
        "sequences/batches",
        {
            _model("kimi_linear"): {
                "padding of longer prompts is not masked": (
                    _MASKED,
                    "if hidden_states.shape[1] < 4:\n            " + _MASKED,
                ),
            }
        },
    ),
    *_of(
        "lfm2",
        "sequences/pieces",
        {
            _model("lfm2"): {
                "a single token behind a cache begins with an empty window": (
                    "if conv_state is not None and seq_len == 1 and",
                    (
                        "conv_state = torch.zeros_like(conv_state) if conv_state is not None and seq_len == 1 else conv_state\n"
                        "        if conv_state is not None and seq_len == 1 and"
                    ),
                ),
            }
        },
    ),
    *_of(
        "granitemoehybrid,qwen3_next",
        "sequences/generate",
        {
            _GENERATION: {
                "beams go on with other beams' states": (
                    "model_kwargs[cache_key].reorder_cache(beam_idx)\n",
                    "pass\n",
                ),
                "a prefill in chunks leaves out its first chunk": (
                    "input_chunks = torch.split(prefill_ids, chunk_size, dim=-1)\n",
                    "input_chunks = torch.split(prefill_ids, chunk_size, dim=-1)[-1:]\n",
                ),
            }
        },
    ),
)
_MLX_CACHES = "mlx_lm.models.cache"
_MLX_CORRECT = "falcon_h1,granitemoehybrid,mamba2,qwen3_next"
MLX_LM = (
    *_of(
        _MLX_CORRECT,
        "sequences/reorder",
        {
            _MLX_CACHES: {
                "filtering rows keeps the first ones": (
                    "self.cache = [c[batch_indices] if c is not None else None for c in self.cache]\n",
                    "self.cache = [c[: batch_indices.size] if c is not None else None for c in self.cache]\n",
                ),
            }
        },
    ),
    *_of(
        _MLX_CORRECT,
        "sequences/batches",
        {
            _MLX_CACHES: {
                "a row that leaves a batch takes the first row's state": (
                    "cache.cache = [c[idx : idx + 1] for c in self.cache]\n",
                    "cache.cache = [c[:1] for c in self.cache]\n",
                ),
                "the first padded token of a row counts as real": (
                    "in_length = pos < self.lengths[:, None]\n",
                    "in_length = pos <= self.lengths[:, None]\n",
                ),
                "merging rows leaves out the state of the last row": (
                    "                if caches[i][e] is None:\n                    continue\n                cache[e][i",
                    "                if caches[i][e] is None or (e and i == B - 1):\n                    continue\n                cache[e][i",
                ),
            },
            "mlx_lm.models.mamba2": {
                "the window of a padded row ends with padding": (
                    "            if cache.lengths is not None:\n",
                    "            if False:\n",
                ),
            },
        },
    ),
    *_of(
        "mamba2",
        "sequences/pieces",
        {
            "mlx_lm.models.mamba2": {
                "the window keeps a token too few": (
                    "cache[0] = padded_input[:, -n_keep:, :]\n",
                    "cache[0] = mx.roll(padded_input, 1, axis=1)[:, -n_keep:, :]\n",
                ),
            },
        },
    ),
    *_of(
        "mamba2",
        "sequences/save",
        {
            _MLX_CACHES: {
                "a saved cache is in bfloat16": (
                    "        if isinstance(data, mx.array):\n            return item\n",
                    "        if isinstance(data, mx.array):\n            return i, data.astype(mx.bfloat16)\n",
                ),
                "a loaded cache has lost its last layer's states": (
                    "def load_prompt_cache(file_name, return_metadata=False):\n",
                    (
                        "def load_prompt_cache(file_name, return_metadata=False):\n"
                        "    found = _loaded(file_name)\n"
                        "    found[-1].cache = [mx.zeros_like(one) for one in found[-1].cache]\n"
                        "    return found\n\n\n"
                        "def _loaded(file_name, return_metadata=False):\n"
                    ),
                ),
            },
        },
    ),
)


if __name__ == "__main__":
    chosen = TRANSFORMERS if find_spec("mlx_lm") is None else MLX_LM
    trials = trials_of(chosen, shrinks=True)
    print_table("tests.breakages.sequences", __doc__, "module", trials, MAX_EXAMPLES, "shrunk")
