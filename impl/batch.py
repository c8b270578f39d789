"""What one step's batch looks like, which of its rows decode, and which blocks they run on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .checks import INT64_MAX, Integers, describe, int_at_least, one_of, refuse, start_offsets, tensor_of
from .types import MAMBA_CACHE_MODES


@dataclass
class CommonAttentionMetadata:
    """One step's batch of R rows (requests), as the runner hands it to every builder.

    query_start_loc [R+1] int32 on the device, query_start_loc_cpu its copy on the host: cumulative query
    starts, padded rows repeat the last. seq_lens [R] int32 on the device: tokens computed before the step
    plus query length, 0 for padded rows. num_reqs, num_actual_tokens: rows and tokens, padding included.
    max_query_len, max_seq_len: upper bounds. block_table_tensor [R, width] int32 on the device.
    slot_mapping: unused by states. is_prefilling [R] bool on the host. seq_lens_cpu_upper_bound [R] on the
    host. Source: contract 1.6.
    """

    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool = True
    is_prefilling: torch.Tensor | None = None
    seq_lens_cpu_upper_bound: torch.Tensor | None = None

    def naive_query_lens(self) -> torch.Tensor:
        """Query lengths [R] on the device, without waiting for it.

        Raises ValueError naming `query_start_loc` unless it is 1-D, int32 or int64, with an entry.
        """
        starts = _device_starts(self.query_start_loc, "naive_query_lens")
        return starts[1:] - starts[:-1]

    def compute_num_computed_tokens(self) -> torch.Tensor:
        """Tokens computed before the step, [R] on the device, without waiting for it.

        Computed anew on each call: a kept result would go stale when seq_lens or the starts are replaced or
        written in place, as the runner does.

        Raises ValueError naming `query_start_loc` or `seq_lens` if they disagree in rank, length, dtype or
        device. Source: contract 1.6.
        """
        function = "compute_num_computed_tokens"
        starts = _device_starts(self.query_start_loc, function)
        rule = f"a {starts.dtype} tensor, as query_start_loc"
        seq_lens = tensor_of("seq_lens", self.seq_lens, 1, function, dtypes=(starts.dtype,), dtype_rule=rule)
        if seq_lens.numel() != starts.numel() - 1 or seq_lens.device != starts.device:
            shape, place = (starts.numel() - 1,), starts.device
            refuse(
                "seq_lens", describe(seq_lens), f"of shape {shape} on {place}, as query_start_loc", function
            )
        return seq_lens - (starts[1:] - starts[:-1])


def _device_starts(query_start_loc: torch.Tensor, function: str) -> torch.Tensor:
    starts = tensor_of("query_start_loc", query_start_loc, 1, function)
    if starts.numel() == 0:
        refuse("query_start_loc", describe(starts), "at least one start", function)
    return starts


def split_decodes_and_prefills(
    common_attn_metadata: Any,
    decode_threshold: int = 1,
    require_uniform: bool = False,
    treat_short_extends_as_decodes: bool = True,
) -> tuple[int, int, int, int]:
    """(num_decodes, num_prefills, num_decode_tokens, num_prefill_tokens) of a batch that is already ordered.

    Decodes are the rows before the first row that is longer than `decode_threshold` tokens, or, with
    `require_uniform`, differs in length from row 0; without `treat_short_extends_as_decodes` a row that
    `is_prefilling` marks ends them as well. All later rows are prefills, however short: nothing is
    reordered. Padding of zero length belongs to the group that it follows. Reads host data only: num_reqs,
    num_actual_tokens, max_query_len, query_start_loc_cpu, and is_prefilling where it matters. The result
    depends on the true lengths, so a loose max_query_len changes nothing.

    Raises ValueError naming `decode_threshold` (< 1), `num_reqs`, `query_start_loc_cpu` (not 1-D, not int32
    or int64, on a device, not num_reqs + 1 starts, not from 0, decreasing), `max_query_len` (less than a
    row's length), `num_actual_tokens` (less than the last start), or `is_prefilling` (needed but None, or
    not [R] bool on the host). Source: contract 1.2.
    """
    function = "split_decodes_and_prefills"
    threshold = int_at_least("decode_threshold", decode_threshold, 1, function)
    rows = int_at_least("num_reqs", common_attn_metadata.num_reqs, 0, function)
    starts = _host_starts(common_attn_metadata.query_start_loc_cpu, rows, function)
    lengths = starts[1:] - starts[:-1]
    longest = int(lengths.max(initial=0))
    int_at_least("max_query_len", common_attn_metadata.max_query_len, longest, function)
    tokens = common_attn_metadata.num_actual_tokens
    tokens = int_at_least("num_actual_tokens", tokens, int(starts[-1]), function)
    if rows == 0:
        return 0, 0, tokens, 0
    ends = _ends_of_decodes(lengths, longest, threshold, require_uniform)
    if not treat_short_extends_as_decodes:
        ends = ends | _host_prefilling(common_attn_metadata.is_prefilling, rows, function)
    return split_at_first(ends, starts, tokens)


def split_at_first(ends: npt.NDArray[np.bool_], starts: Integers, tokens: int) -> tuple[int, int, int, int]:
    """What split_decodes_and_prefills returns when the first True of `ends` [R >= 1] ends the decodes."""
    first = int(ends.argmax())
    if not ends[first]:
        return ends.size, 0, tokens, 0
    decode_tokens = int(starts[first])
    return first, ends.size - first, decode_tokens, tokens - decode_tokens


def _ends_of_decodes(
    lengths: Integers, longest: int, threshold: int, require_uniform: bool
) -> npt.NDArray[np.bool_]:
    too_long: npt.NDArray[np.bool_] = lengths > threshold
    # A graph for single tokens, or for rows of one length, also runs the rows of length 0 that pad it.
    single = threshold == 1 and longest <= 1
    if not require_uniform or single or ((lengths == lengths[0]) | (lengths == 0)).all():
        return too_long
    # Row 0 longer than the threshold starts the prefills at once, so that comparing with it needs no case.
    uneven: npt.NDArray[np.bool_] = lengths != lengths[0]
    return too_long | uneven


def _host_starts(query_start_loc_cpu: torch.Tensor, rows: int, function: str) -> Integers:
    argument = "query_start_loc_cpu"
    tensor = _on_host(argument, tensor_of(argument, query_start_loc_cpu, 1, function), function)
    if tensor.numel() != rows + 1:
        refuse(argument, describe(tensor), f"num_reqs + 1 = {rows + 1} starts", function)
    return start_offsets(argument, tensor, function, first_is_zero=True)


def _host_prefilling(is_prefilling: torch.Tensor | None, rows: int, function: str) -> npt.NDArray[np.bool_]:
    argument = "is_prefilling"
    tensor = tensor_of(argument, is_prefilling, 1, function, dtypes=(torch.bool,), dtype_rule="a bool tensor")
    if _on_host(argument, tensor, function).numel() != rows:
        refuse(argument, describe(tensor), f"of shape {(rows,)}, one entry per row", function)
    marks: npt.NDArray[np.bool_] = tensor.numpy()
    return marks


def _on_host(argument: str, tensor: torch.Tensor, function: str) -> torch.Tensor:
    if tensor.device.type != "cpu":
        refuse(argument, describe(tensor), "on the CPU", function)
    return tensor


def mamba_get_block_table_tensor(
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    kv_cache_spec: Any,
    mamba_cache_mode: str,
    *,
    max_seq_len: int | None = None,
) -> torch.Tensor:
    """The block ids that a step runs on.

    Modes none and all return `block_table` itself. Mode align returns a new [R, 1+m] tensor of the table's
    dtype and device: the block that holds each row's last token, then the m speculative ones; a row of
    length <= 0 starts at column 0. `block_table`: [>= R, width] int32 or int64, any strides. `seq_lens`: [R]
    int32 or int64 on the same device. `kv_cache_spec`: anything with block_size and num_speculative_blocks.

    Every row must satisfy seq_len <= (width - m) * block_size. `max_seq_len`, a bound that the host knows,
    is checked in place of the rows. Without it the rows are checked if they are on the CPU; on a device
    they are not read, since that would wait for it, and the gather's own device assert guards the table.

    Raises ValueError naming `mamba_cache_mode`, `block_table` (form, or narrower than 1+m), `seq_lens`
    (form, more rows than the table, a row too long) or `max_seq_len`. Source: contract 1.4.
    """
    function = "mamba_get_block_table_tensor"
    one_of("mamba_cache_mode", mamba_cache_mode, MAMBA_CACHE_MODES, function)
    if mamba_cache_mode != "align":
        return block_table
    _check_table(block_table, seq_lens, function)
    block_size = int_at_least("block_size", kv_cache_spec.block_size, 1, function)
    extra = int_at_least("num_speculative_blocks", kv_cache_spec.num_speculative_blocks, 0, function)
    width = block_table.size(1)
    if width < 1 + extra:
        refuse("block_table", describe(block_table), f"at least {1 + extra} columns wide", function)
    longest = (width - extra) * block_size
    if max_seq_len is not None:
        _check_bound(max_seq_len, longest, function)
    elif seq_lens.is_cpu:
        check_longest(seq_lens.numpy(), longest, function)
    # Clamped before the subtraction and widened after it: neither the smallest integer nor a huge block
    # size can wrap around.
    last_token = seq_lens.clamp(min=1).to(torch.int64) - 1
    columns = torch.div(last_token, min(block_size, INT64_MAX), rounding_mode="floor").unsqueeze(1)
    if extra:
        columns = columns + torch.arange(1 + extra, device=columns.device)
    return block_table.gather(1, columns)


def _check_table(block_table: torch.Tensor, seq_lens: torch.Tensor, function: str) -> None:
    tensor_of("block_table", block_table, 2, function)
    tensor_of("seq_lens", seq_lens, 1, function)
    if seq_lens.device != block_table.device:
        refuse("seq_lens", describe(seq_lens), f"on {block_table.device}, as block_table", function)
    if seq_lens.size(0) > block_table.size(0):
        rule = f"at most {block_table.size(0)} rows, as block_table"
        refuse("seq_lens", describe(seq_lens), rule, function)


def _check_bound(max_seq_len: int, longest: int, function: str) -> None:
    bound = int_at_least("max_seq_len", max_seq_len, 0, function)
    if bound > longest:
        refuse("max_seq_len", bound, f"<= {longest}, what block_table covers", function)


def check_longest(seq_lens: Integers, longest: int, function: str) -> None:
    """Refuse the first row on the host that is longer than `longest`, what its table covers."""
    # NumPy's own maximum of so few takes several times as long.
    if seq_lens.size and seq_lens.item(seq_lens.argmax()) > longest:
        row = int((seq_lens > longest).argmax())
        rule = f"<= {longest}, what block_table covers"
        refuse(f"seq_lens[{row}]", seq_lens.item(row), rule, function)
