"""Chunk metadata: document 0, the programs of the prefill convolution, and the FLA chunk indices."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from properties.strategies.bounds import MOST_CHUNKS
from properties.strategies.chunks import (
    Packed,
    VectorForm,
    packed_sequences,
    varlen_call,
    vector_forms,
    vector_of,
)
from statecheck.case.values import Call, Device, Let, Name, Overwrite, Step, Tensor, call, int32
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

VARLEN = "compute_varlen_chunk_metadata"
CONV = "compute_causal_conv1d_metadata"
INDICES, OFFSETS = "prepare_chunk_indices", "prepare_chunk_offsets"
FLA_SIZES = (64, 1, 2, 4)
sequences = packed_sequences()
short_sequences = packed_sequences(wide=False)
"""For all functions: programs of convolutions have eight tokens, so that millions of tokens are millions of programs."""
long_packed_sequences = packed_sequences(most_chunks=MOST_CHUNKS)
fla_sequences = packed_sequences(chunk_sizes=FLA_SIZES)
long_fla_sequences = packed_sequences(chunk_sizes=FLA_SIZES, most_chunks=MOST_CHUNKS)
conv_sequences = packed_sequences(chunk_sizes=(8,), wide=False)
longer_conv_sequences = packed_sequences(chunk_sizes=(8,), wide=False, most_chunks=MOST_CHUNKS)
long_sequences = st.builds(
    Packed, st.sampled_from(((8192,), (8184,), (8193,), (4, 8193, 0, 1), (8189, 3), (9000, 7000))), st.just(8)
)
"""The least tables are for 1,024 programs: as many, one fewer and one more, in one row and in several."""


def conv_call(starts: Tensor) -> Call:
    return Call(CONV, (("query_start_loc_p_cpu", starts.on_host()),), (("device", Device()),))


@prop("varlen-chunks/ends", "agreement", VARLEN, packed=long_packed_sequences, form=vector_forms())
def test_varlen_chunks_ends(trial: Example, packed: Packed, form: VectorForm) -> None:
    """Chunks end at sequence ends and at multiples of the chunk size."""
    starts = vector_of(packed.starts, form)
    trial.agrees(call(VARLEN, query_start_loc=starts, chunk_size=packed.chunk_size))


@prop("varlen-chunks/partition", "partition", VARLEN, packed=sequences)
def test_varlen_chunks_partition(trial: Example, packed: Packed) -> None:
    """Chunks cover every token once."""
    cu, _, sequences = (tensor.values() for tensor in trial.returns(varlen_call(packed)))
    trial.equals("cu_chunk_seqlens", (cu[0], cu[-1]), (0, packed.starts[-1]))
    trial.holds(
        all(a < b for a, b in pairwise(cu)),
        f"cu_chunk_seqlens = {cu}",
        "should increase strictly",
        place="order of cu_chunk_seqlens",
    )
    trial.equals("number of sequence ids", len(sequences), len(cu) - 1)


@prop("varlen-chunks/boundaries", "partition", VARLEN, packed=sequences)
def test_varlen_chunks_boundaries(trial: Example, packed: Packed) -> None:
    """No chunk crosses a sequence end or a physical chunk boundary."""
    cu, _, sequences = (tensor.values() for tensor in trial.returns(varlen_call(packed)))
    for chunk, ((begin, end), sequence) in enumerate(zip(pairwise(cu), sequences, strict=False)):
        inside = packed.starts[sequence] <= begin and end <= packed.starts[sequence + 1]
        trial.holds(
            inside,
            f"chunk {chunk} = tokens {begin}..{end}",
            f"should lie in sequence {sequence}",
            place="chunks of sequences",
        )
        one_tile = begin // packed.chunk_size == (end - 1) // packed.chunk_size
        trial.holds(
            one_tile,
            f"chunk {chunk} = tokens {begin}..{end}",
            "should lie in one physical chunk",
            place="physical chunks",
        )


@prop("varlen-chunks/last-chunk", "padding", VARLEN, packed=sequences)
def test_varlen_chunks_last_chunk(trial: Example, packed: Packed) -> None:
    """The last chunk of a sequence is its own and minus one where it is empty."""
    cu, last, sequences = (tensor.values() for tensor in trial.returns(varlen_call(packed)))
    for sequence, length in enumerate(packed.lens):
        chunk = last[sequence]
        right = (
            sequences[chunk] == sequence and cu[chunk + 1] == packed.starts[sequence + 1]
            if length
            else chunk == -1
        )
        trial.holds(
            right,
            f"last_chunk_indices[{sequence}] = {chunk}",
            f"should be the last chunk of its {length} tokens",
            place="last_chunk_indices",
        )


@prop("varlen-chunks/empty-rows", "metamorphic", VARLEN, packed=sequences, rows=st.integers(1, 3))
def test_varlen_chunks_empty_rows(trial: Example, packed: Packed, rows: int) -> None:
    """Zero length rows at the back add nothing but minus ones."""
    cu, last, sequences = trial.returns(varlen_call(packed))
    padded = trial.returns(varlen_call(replace(packed, lens=(*packed.lens, *(0,) * rows))))
    expected = (cu.values(), (*last.values(), *(-1,) * rows), sequences.values())
    observed = tuple(tensor.values() for tensor in padded)
    trial.equals("result", observed, expected)


STARTS = {
    VARLEN: "query_start_loc",
    CONV: "query_start_loc_p_cpu",
    INDICES: "cu_seqlens",
    OFFSETS: "cu_seqlens",
}


def called_twice(function: str, before: Packed, after: Packed) -> tuple[Step, ...]:
    """Call, change the starts in place, and call again with the same tensor."""
    conv = function == CONV
    starts = int32(before.starts).on_host() if conv else int32(before.starts)
    arguments = {STARTS[function]: Name("starts")} | ({} if conv else {"chunk_size": before.chunk_size})
    keywords = (("device", Device()),) if conv else ()
    step = Call(function, tuple(arguments.items()), keywords)
    return Let("starts", starts), step, Overwrite("starts", after.starts), step


@prop(
    "chunk-metadata/changed-in-place",
    "ownership",
    VARLEN,
    CONV,
    INDICES,
    OFFSETS,
    any_of=True,
    # First, so that no other form of the sequences makes it the first function.
    function=st.sampled_from(tuple(STARTS)),
    packed=short_sequences,
)
def test_chunk_metadata_changed_in_place(trial: Example, packed: Packed, function: str) -> None:
    """Starts that changed in place give a fresh result."""
    offered = trial.offered(*STARTS)
    if function not in offered:
        function = offered[tuple(STARTS).index(function) % len(offered)]
    longer = replace(packed, lens=tuple(length + 1 for length in packed.lens))
    trial.agrees(*called_twice(function, packed, longer))


@prop(
    "conv1d-metadata/tiles",
    "agreement",
    CONV,
    packed=longer_conv_sequences | long_sequences,
    form=vector_forms(),
)
def test_conv1d_metadata_tiles(trial: Example, packed: Packed, form: VectorForm) -> None:
    """Each prefill row is cut into tiles of eight tokens."""
    trial.agrees(conv_call(vector_of(packed.starts, form)))


@prop("conv1d-metadata/partition", "partition", CONV, packed=conv_sequences)
def test_conv1d_metadata_partition(trial: Example, packed: Packed) -> None:
    """Every prefill token belongs to exactly one program."""
    nums, _, _ = trial.returns(conv_call(int32(packed.starts)))
    tiles = list(zip(nums[8]["batch_ptr"].values(), nums[8]["token_chunk_offset_ptr"].values(), strict=True))
    strangers = {row for row, _ in tiles if row >= len(packed.lens)}
    trial.holds(
        not strangers,
        f"programs of rows {strangers}",
        f"there are only {len(packed.lens)} rows",
        place="programs",
    )
    seen = [(row, token) for row, tile in tiles if row >= 0 for token in _tokens(packed, row, tile)]
    wanted = [(row, token) for row, length in enumerate(packed.lens) for token in range(length)]
    trial.equals("programs", seen, wanted)


def _tokens(packed: Packed, row: int, tile: int) -> range:
    return range(8 * tile, min(8 * tile + 8, packed.lens[row]))


@prop("conv1d-metadata/padding", "padding", CONV, packed=conv_sequences | long_sequences)
def test_conv1d_metadata_padding(trial: Example, packed: Packed) -> None:
    """Entries behind the programs are fillers.

    Both arrays have twice as many entries as 1,024 or as there are programs, whichever is more; those behind the programs are -1.
    """
    nums, _, _ = trial.returns(conv_call(int32(packed.starts)))
    total = nums[8]["tot"]
    for name in ("batch_ptr", "token_chunk_offset_ptr"):
        values = nums[8][name].values()
        trial.equals(f"len({name})", len(values), 2 * max(1024, total))
        trial.holds(
            set(values[total:]) <= {-1},
            f"{name}[{total}:] has {set(values[total:])}",
            "should be -1 only",
            place=name,
        )


@prop("conv1d-metadata/moved-starts", "metamorphic", CONV, packed=conv_sequences, offset=st.integers(1, 100))
def test_conv1d_metadata_moved_starts(trial: Example, packed: Packed, offset: int) -> None:
    """Only the differences of prefill starts matter."""
    plain = trial.returns(conv_call(int32(packed.starts)))
    moved = trial.returns(conv_call(int32([start + offset for start in packed.starts])))
    trial.holds(plain == moved, f"starts moved by {offset} give another result", "should not", place="result")


@prop("fla-chunks/indices", "agreement", INDICES, packed=long_fla_sequences, form=vector_forms())
def test_fla_chunks_indices(trial: Example, packed: Packed, form: VectorForm) -> None:
    """Chunk indices name the sequence and the chunk within it."""
    starts = vector_of(packed.starts, form)
    trial.agrees(call(INDICES, cu_seqlens=starts, chunk_size=packed.chunk_size))


@prop("fla-chunks/offsets", "agreement", OFFSETS, packed=long_fla_sequences, form=vector_forms())
def test_fla_chunks_offsets(trial: Example, packed: Packed, form: VectorForm) -> None:
    """Chunk offsets count the chunks before each sequence."""
    starts = vector_of(packed.starts, form)
    trial.agrees(call(OFFSETS, cu_seqlens=starts, chunk_size=packed.chunk_size))


@prop("fla-chunks/partition", "partition", INDICES, OFFSETS, packed=fla_sequences)
def test_fla_chunks_partition(trial: Example, packed: Packed) -> None:
    """Chunk indices of a sequence stand between its offsets."""
    arguments = {"cu_seqlens": int32(packed.starts), "chunk_size": packed.chunk_size}
    indices = trial.returns(call(INDICES, **arguments)).rows()
    offsets = trial.returns(call(OFFSETS, **arguments)).values()
    for sequence, (begin, end) in enumerate(pairwise(offsets)):
        wanted = tuple((sequence, chunk) for chunk in range(end - begin))
        trial.equals("chunk_indices", indices[begin:end], wanted)
    trial.equals("chunk_offsets", offsets[-1], len(indices))
