// Batches and numbers: chunks, decodes and prefills, gathered block tables.
"use strict";
const tensor = (dtype, data, shape = [data.length]) => ({ dtype, shape, data });

function need(holds, argument) {
  if (!holds) throw new RangeError(argument);
}

function up(x, y) { // the quotient rounded up; integers beyond 2**53 are strings
  const [a, b] = [BigInt(x), BigInt(y)], found = a / b + BigInt(a % b !== 0n && a < 0n === b < 0n);
  return Number.isSafeInteger(Number(found)) ? Number(found) : String(found);
}

function whole(value, argument, least = -Infinity) { // an integer, and no truth value; beyond 2**53 it is a string
  need(Number.isInteger(value) ? value >= least : typeof value === "string", argument);
}

function integers({ dtype, shape, data }, argument, rank = 1) {
  need(/^int(32|64)$/.test(dtype) && shape.length === rank, argument);
  return data;
}

function starting(vector, argument) { // cumulative starts that never step back
  const starts = integers(vector, argument);
  need(starts.length && lengths(starts).every((n) => n >= 0), argument);
  return starts;
}
const lengths = (starts) => starts.slice(1).map((end, row) => end - starts[row]);
const tiles = (starts, size) => lengths(starts).map((length) => Math.ceil(length / size));
const pieces = (starts, size) => tiles(starts, size).flatMap((n, row) => Array.from({ length: n }, (_, i) => [row, i]));

module.exports = {
  cdiv({ x, y }) {
    if (x?.data) need(/^int(32|64)$/.test(x.dtype), "x");
    else whole(x, "x");
    whole(y, "y");
    need(y !== 0, "y");
    if (x?.data) need(BigInt.asIntN(x.dtype === "int32" ? 32 : 64, BigInt(y)) === BigInt(y), "y");
    return x?.data ? tensor(x.dtype, x.data.map((one) => up(one, y)), x.shape) : up(x, y);
  },
  divide({ x, y }) {
    whole(x, "x");
    whole(y, "y");
    need(y !== 0, "y");
    need(BigInt(x) % BigInt(y) === 0n, "x");
    return up(x, y);
  },
  compute_varlen_chunk_metadata({ query_start_loc: vector, chunk_size: size }) {
    const starts = starting(vector, "query_start_loc"), begins = [], owners = [];
    need(starts[0] === 0 && starts.at(-1) < 2 ** 31, "query_start_loc");
    whole(size, "chunk_size", 1);
    starts.slice(1).forEach((end, row) => {
      for (let at = starts[row]; at < end; at += size - (at % size)) begins.push(at), owners.push(row);
    });
    const last = lengths(starts).map((_, row) => owners.lastIndexOf(row));
    return [[...begins, starts.at(-1)], last, owners].map((one) => tensor("int32", one));
  },
  compute_causal_conv1d_metadata({ query_start_loc_p_cpu: vector }) {
    const starts = starting(vector, "query_start_loc_p_cpu"), found = pieces(starts, 8), tot = found.length;
    const [rows, places] = [0, 1].map((i) => found.map((piece) => piece[i]));
    const filler = Array(2 * Math.max(1024, tot) - tot).fill(-1), padded = (list) => tensor("int32", [...list, ...filler]);
    const lists = { mlist: tensor("int64", rows), mlist_len: tot, offsetlist: tensor("int32", places) };
    const pointers = { batch_ptr: padded(rows), token_chunk_offset_ptr: padded(places) };
    const same = Object.keys(pointers).map((name) => ({ same_as: `result[0][8]['${name}']` }));
    return [{ 8: { nums: tensor(vector.dtype, tiles(starts, 8)), tot, ...lists, ...pointers } }, ...same];
  },
  prepare_chunk_indices({ cu_seqlens: vector, chunk_size: size }) {
    const starts = starting(vector, "cu_seqlens");
    whole(size, "chunk_size", 1);
    const found = pieces(starts, size);
    return tensor(vector.dtype, found.flat(), [found.length, 2]);
  },
  prepare_chunk_offsets({ cu_seqlens: vector, chunk_size: size }) {
    const starts = starting(vector, "cu_seqlens");
    whole(size, "chunk_size", 1);
    let total = 0;
    return tensor("int64", [0, ...tiles(starts, size)].map((count) => (total += count)));
  },
  split_decodes_and_prefills({ common_attn_metadata: batch, decode_threshold: most = 1, require_uniform: uniform = false,
    treat_short_extends_as_decodes: short = true }) {
    const starts = starting(batch.query_start_loc_cpu, "query_start_loc_cpu"), lens = lengths(starts);
    const longest = Math.max(0, ...lens), prompts = batch.is_prefilling?.data, total = batch.num_actual_tokens;
    need(starts[0] === 0 && lens.length === batch.num_reqs, "query_start_loc_cpu");
    whole(most, "decode_threshold", 1);
    need(batch.max_query_len >= longest, "max_query_len");
    need(total >= starts.at(-1), "num_actual_tokens");
    need(prompts ? prompts.length === lens.length : short || !lens.length, "is_prefilling");
    const uneven = uniform && lens.some((n) => n && n !== lens[0]) && (most > 1 || longest > 1);
    const first = lens.findIndex((n, row) => n > most || (uneven && n !== lens[0]) || (!short && prompts[row]));
    return first < 0 ? [lens.length, 0, total, 0] : [first, lens.length - first, starts[first], total - starts[first]];
  },
  mamba_get_block_table_tensor({ block_table: table, seq_lens, kv_cache_spec: spec, mamba_cache_mode: mode, max_seq_len }) {
    const blocks = integers(table, "block_table", 2), lens = integers(seq_lens, "seq_lens");
    const [rows, width] = table.shape, kept = 1 + spec.num_speculative_blocks, most = spec.block_size * (width - kept + 1);
    need(["none", "align", "all"].includes(mode), "mamba_cache_mode");
    if (mode !== "align") return { same_as: "block_table" };
    whole(spec.block_size, "block_size", 1);
    whole(spec.num_speculative_blocks, "num_speculative_blocks", 0);
    need(!rows || width >= kept, "block_table");
    need((max_seq_len ?? 0) <= most, "max_seq_len");
    need(lens.length <= rows && lens.every((n) => n <= most), "seq_lens");
    const first = (n, row) => row * width + Math.max(0, Math.ceil(n / spec.block_size) - 1);
    const data = lens.flatMap((n, row) => blocks.slice(first(n, row), first(n, row) + kept));
    return tensor(table.dtype, data, [lens.length, kept]);
  },
  "CommonAttentionMetadata.naive_query_lens": ({ self: batch }) => tensor("int32", lengths(starting(batch.query_start_loc, "query_start_loc"))),
  "CommonAttentionMetadata.compute_num_computed_tokens"({ self: batch }) {
    const lens = lengths(starting(batch.query_start_loc, "query_start_loc")), ends = integers(batch.seq_lens, "seq_lens");
    need(ends.length === lens.length, "seq_lens");
    return tensor("int32", lens.map((length, row) => ends[row] - length));
  },
};
