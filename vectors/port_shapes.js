// What one block holds: shapes of states, bytes of pages, and where a copy specification begins.
"use strict";
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const bytesOf = (dtype) => /\d+/.exec(dtype) / 8;

function need(holds, argument) {
  if (!holds) throw new RangeError(argument);
}

function layout({ VLLM_SSM_CONV_STATE_LAYOUT: name = "SD" }) {
  need(["SD", "DS"].includes(name), "VLLM_SSM_CONV_STATE_LAYOUT");
  return name;
}
const turned = (channels, rows, environment) => (layout(environment) === "SD" ? [rows, channels] : [channels, rows]);

function sized(sizes, tp) { // what is a size at all, and of heads and channels the same whole share for every rank
  const least = (name) => (name === "num_spec" ? 0 : name.startsWith("conv_kernel") ? 2 : 1);
  for (const [name, size] of Object.entries(sizes)) need(size === null || (Number.isInteger(size) && size >= least(name)), name);
  for (const [name, size] of Object.entries(sizes)) need(!/heads|intermediate_size/.test(name) || size % tp === 0, name);
}

function missing(groups, tp, argument) { // groups that are repeated, so that every rank holds whole ones
  need(groups % tp === 0 || tp % groups === 0, argument);
  return groups % tp === 0 ? 0 : tp - groups;
}

const shaped = (formula) => (a, environment) => {
  const tp = a.tp_size ?? a.tp_world_size, taps = a.conv_kernel ?? a.conv_kernel_size ?? 4;
  sized(a, tp);
  return formula(a, tp, (channels) => turned(channels / tp, taps - 1 + (a.num_spec ?? 0), environment));
};

function page({ shapes, dtypes, page_size_padded: padded }) {
  need(shapes.length === dtypes.length, "dtypes");
  need(shapes.flat().every((size) => Number.isInteger(size) && size >= 1), "shapes");
  const states = shapes.reduce((total, shape, i) => total + product(shape) * bytesOf(dtypes[i]), 0);
  need(Number.isInteger(padded ?? states) && (padded ?? states) >= states, "page_size_padded");
  return padded ?? states;
}

function specified({ state, block_ids: ids, cur_block_idx: running, num_accepted_tokens: count }, further, skipped) {
  const gapless = (axis) => state.shape[axis] === 1 || state.strides[axis] === product(state.shape.slice(axis + 1));
  need(state.shape.length > 1 && state.shape.every((_, axis) => axis === 0 || gapless(axis)), "state");
  need(Number.isInteger(count) && count >= 1, "num_accepted_tokens");
  need(Number.isInteger(running) && running >= 0 && running < ids.length, "cur_block_idx");
  need(running + count <= ids.length, "num_accepted_tokens");
  const block = ids[running + further];
  need(block > 0 && block < state.shape[0], "block_ids");
  return { start_element: block * state.strides[0] + skipped, num_elements: product(state.shape.slice(1)) - skipped };
}

const families = {
  linear_attention_state_shape: shaped((a, tp) => [[a.num_heads / tp, a.head_dim, a.head_dim]]),
  mamba1_state_shape: shaped((a, tp, conv) => [conv(a.intermediate_size), [a.intermediate_size / tp, a.state_size]]),
  mamba2_state_shape: shaped((a, tp, conv) => {
    const groups = a.n_groups + missing(a.n_groups, tp, "n_groups");
    return [conv(a.intermediate_size + 2 * groups * a.state_size), [a.num_heads / tp, a.head_dim, a.state_size]];
  }),
  short_conv_state_shape: shaped((a, tp, conv) => [conv(a.intermediate_size)]),
  gated_delta_net_state_shape: shaped((a, tp, conv) => {
    const channels = 2 * a.num_k_heads * a.head_k_dim + a.num_v_heads * a.head_v_dim;
    return [conv(channels), [a.num_v_heads / tp, a.head_v_dim, a.head_k_dim]];
  }),
  kda_state_shape: shaped((a, tp, conv) => {
    const keys = conv((a.num_k_heads ?? a.num_heads) * (a.head_k_dim ?? a.head_dim));
    return [conv(a.num_heads * a.head_dim), keys, keys, [a.num_heads / tp, a.head_dim, a.head_dim]];
  }),
  extra_groups_for_head_shards: shaped((a, tp) => missing(a.ngroups, tp, "ngroups")),
  _orient_conv_shape: ({ dim, state_len: rows }, environment) => turned(dim, rows, environment),
};

module.exports = {
  ...Object.fromEntries(Object.entries(families).map(([name, rule]) => [`MambaStateShapeCalculator.${name}`, rule])),
  "MambaSpec.page_size_bytes": ({ self }) => page(self),
  "MambaSpec.max_memory_usage_bytes"({ self: spec, vllm_config: { model_config: model } }) {
    need(["none", "align", "all"].includes(spec.mamba_cache_mode), "mamba_cache_mode");
    need(Number.isInteger(spec.block_size) && spec.block_size >= 1, "block_size");
    need(Number.isInteger(spec.num_speculative_blocks) && spec.num_speculative_blocks >= 0, "num_speculative_blocks");
    const drafts = spec.num_speculative_blocks, all = Math.ceil(model.max_model_len / spec.block_size);
    return page(spec) * { none: 1 + drafts, align: 2 + drafts, all }[spec.mamba_cache_mode];
  },
  get_conv_state_layout: (_, environment) => layout(environment),
  is_conv_state_dim_first: (_, environment) => layout(environment) === "DS",
  get_conv_copy_spec(a, environment) { // rows from the last accepted token's on; in layout DS they do not lie together
    const { state: { shape }, num_accepted_tokens: count } = a, rows = shape[layout(environment) === "SD" ? 1 : 2];
    need(shape.length === 3, "state");
    need(count <= rows, "num_accepted_tokens");
    const found = specified(a, 0, (count - 1) * shape[2]);
    need(count === 1 || layout(environment) === "SD", "num_accepted_tokens");
    return found;
  },
  get_temporal_copy_spec: (a) => specified(a, a.num_accepted_tokens - 1, 0),
};
