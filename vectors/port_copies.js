// Align mode: which state goes where before a step and after it, and the copies themselves, byte by byte.
"use strict";
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const entries = (vector, count) => vector.data.slice(0, count);

function piece(pools, { pool, offset }) { // the bytes around a place, and where among them it is
  const around = (one) => one.offset <= offset && offset < one.offset + one.bytes.data.length;
  const { bytes, offset: first } = pools[pool].pieces.find(around);
  return [bytes.data, offset - first];
}

function copied(pools, copies) { // as if through a temporary: everything is read before anything is written
  const writes = copies.filter(({ size }) => size > 0).map(({ source, target, size }) => {
    const [bytes, at] = piece(pools, source);
    return [...piece(pools, target), bytes.slice(at, at + size)];
  });
  for (const [bytes, at, written] of writes) written.forEach((byte, i) => (bytes[at + i] = byte));
  return pools;
}

function blocksOf({ block_tables: tables }, state, { row, from, to, bias }) { // none where nothing may be copied
  const { data, shape: [, width] } = tables[state.group], first = state.kind === "conv" ? from : from + bias;
  if (Math.min(from, to) < 0 || Math.max(first, to) >= width) return [];
  const blocks = [first, to].map((column) => data[row * width + column]);
  return Math.min(...blocks) > 0 ? blocks : [];
}

function copiesOf(a, state, move) { // a temporal state as it is; a conv state moves up by rows, in layout DS in every channel
  const [source, target] = blocksOf(a, state, move).map((block) => state.offset_bytes + block * state.block_stride_bytes);
  if (source === undefined) return [];
  const place = (offset) => ({ pool: state.pool, offset }), isConv = state.kind === "conv", inner = state.block_shape.at(-1);
  const isDown = isConv && a.conv_state_layout === "DS", whole = product(state.block_shape) * state.itemsize;
  const line = isDown ? inner * state.itemsize : whole, skip = isConv ? move.bias * state.itemsize * (isDown ? 1 : inner) : 0;
  const starts = Array.from({ length: whole / line }, (_, i) => i * line);
  return starts.map((at) => ({ source: place(source + at + skip), target: place(target + at), size: line - skip }));
}

const moved = (a, moves) => copied(a.pools, a.states.flatMap((state) => moves.flatMap((move) => copiesOf(a, state, move))));

function afterStep(row, run, first, last, count, size) { // the count for the next step, and the moves that are due
  const column = Math.floor(last / size) - 1, bias = (column + 1) * size - first;
  if (bias < 0) return { count, moves: [] };
  const move = { row, from: run, to: column, bias };
  return { count: column === run ? 1 : count, moves: column === run && bias === 0 ? [] : [move] };
}

function slotsOf(a, mapping) { // row and slot of the rows that have one
  return entries(mapping, a.num_reqs).map((slot, row) => ({ slot, row })).filter(({ slot }) => slot >= 0);
}

function listed(a) {
  return { pools: copied(a.pools, a.copies) };
}

module.exports = {
  batch_memcpy: listed,
  do_mamba_copy_block: listed,
  "MambaSpecDecodeGPUContext.run_fused_precopy"(a) {
    const [columns, from, bias] = [a.state_idx_gpu, a.src_col_gpu, a.token_bias_gpu].map((vector) => vector.data);
    const due = slotsOf(a, a.idx_mapping).filter(({ slot }) => from[slot] >= 0 && from[slot] !== columns[slot]);
    return { pools: moved(a, due.map(({ slot, row }) => ({ row, from: from[slot], to: columns[slot], bias: bias[slot] }))) };
  },
  "MambaSpecDecodeGPUContext.run_fused_postprocess"(a) { // from what was scheduled, by row
    const decided = entries(a.num_accepted_tokens_gpu, a.num_reqs).map((count, row) => {
      const sampled = a.num_scheduled_tokens_gpu.data[row] - a.num_draft_tokens_gpu.data[row];
      const first = a.num_computed_tokens_gpu.data[row] + sampled;
      return afterStep(row, a.mamba_state_idx_gpu.data[row], first, first + count - 1, count, a.block_size);
    });
    decided.forEach(({ count }, row) => (a.num_accepted_tokens_out.data[row] = count));
    return { num_accepted_tokens_out: a.num_accepted_tokens_out, pools: moved(a, decided.flatMap(({ moves }) => moves)) };
  },
  "MambaSpecDecodeGPUContext.run_fused_postprocess_align"(a) { // from what is computed now, by slot
    const counts = a.num_accepted_tokens_gpu, [runs, ends] = [a.state_idx_gpu.data, a.new_num_computed_tokens_gpu.data];
    const decided = slotsOf(a, a.idx_mapping).map(({ slot, row }) => {
      const count = counts.data[slot], last = ends[slot];
      return { slot, ...afterStep(row, runs[slot], last - count + 1, last, count, a.block_size) };
    });
    decided.forEach(({ slot, count }) => (counts.data[slot] = count));
    return { num_accepted_tokens_gpu: counts, pools: moved(a, decided.flatMap(({ moves }) => moves)) };
  },
  preprocess_mamba_align_fused_kernel(a) { // the column of each request's last token, and where its state is now
    const names = ["state_idx_ptr", "num_accepted_tokens_ptr", "src_col_ptr", "src_off_ptr"];
    const [columns, counts, from, bias] = names.map((name) => a[name].data), starts = a.query_start_loc_ptr.data;
    for (const { slot, row } of slotsOf(a, a.idx_mapping_ptr)) {
      const tokens = a.num_computed_tokens_ptr.data[slot] + starts[row + 1] - starts[row];
      [from[slot], bias[slot]] = [columns[slot], Math.max(0, counts[slot] - 1)];
      columns[slot] = Math.ceil(tokens / a.MAMBA_BLOCK_SIZE) - 1;
      if (from[slot] >= 0 && from[slot] !== columns[slot]) counts[slot] = 1;
    }
    return Object.fromEntries(names.map((name) => [name, a[name]]));
  },
};
