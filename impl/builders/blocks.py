"""From tokens to the columns of a block table, and to the blocks that hold the states."""

import torch

from ..batch import check_longest
from ..checks import INT32_MAX, Integers, describe, refuse


class StateBlocks:
    """Which blocks of its table a row runs on, in one cache mode, and which columns its tokens are in.

    Rows are followed by `extra` columns of speculative blocks in mode align. What it keeps between builds
    depends on no batch. Source: contract 1.4.
    """

    def __init__(self, mode: str, block_size: int, extra: int) -> None:
        self.mode = mode
        self._extra = extra
        # No token is beyond the first block of that size, and larger ones would not fit the arithmetic.
        self.block_size = min(block_size, INT32_MAX)
        self._multiples = torch.empty(0)
        self._offsets = torch.empty(0)

    def check(
        self,
        argument: str,
        table: torch.Tensor,
        seq_lens: Integers | None,
        columns: int,
        function: str,
    ) -> None:
        """Refuse a table without room for `columns` states per row.

        In mode align, `seq_lens` are checked against it, if they are on the host. On a device they are not
        read, since that would wait for it: that a row has at most (width - num_speculative_blocks) *
        block_size tokens is a precondition there, and the gather's device assert guards the table.
        """
        if self.mode == "all":
            return
        width = table.size(1)
        if width < max(columns, 1 + self._extra):
            rule = f"at least {max(columns, 1 + self._extra)} columns wide"
            refuse(argument, describe(table), rule, function)
        if self.mode == "align" and seq_lens is not None:
            check_longest(seq_lens, (width - self._extra) * self.block_size, function)

    def ids(self, table: torch.Tensor, seq_lens: torch.Tensor, columns: int) -> torch.Tensor:
        """[R, columns] block ids in the table's dtype; in mode all the whole table.

        Modes none and all return a view of the table, mode align a new tensor.
        """
        if self.mode == "all":
            return table
        if self.mode == "none":
            return table[:, :columns]
        # Beyond the table's last column there is one bucket more, so that the gather meets what is too long.
        first = torch.bucketize(seq_lens.contiguous(), self.ends(seq_lens, table.size(1))).unsqueeze(1)
        if columns > 1:
            first = first + self._first_columns(columns, table.device)
        return table.gather(1, first)

    def column_of_last(
        self, tokens: torch.Tensor, most: int, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """max(ceil(n / block_size) - 1, 0), int32, for each n of `tokens`, as long as that is at most `most`."""
        return torch.bucketize(tokens.contiguous(), self.ends(tokens, most), out_int32=True, out=out)

    def column_of_next(self, tokens: torch.Tensor, most: int) -> torch.Tensor:
        """floor(n / block_size), int32, for each n >= 0 of `tokens`, as long as that is at most `most`."""
        return torch.bucketize(tokens.contiguous(), self.ends(tokens, most), out_int32=True, right=True)

    def ends(self, tokens: torch.Tensor, most: int) -> torch.Tensor:
        """The first `most` multiples of the block size, or more: a token's column is the bucket that it falls into.

        That takes one kernel, where the formulas take four.
        """
        if self._multiples.numel() < most or self._multiples.dtype != tokens.dtype:
            counts = torch.arange(1, most + 1, device=tokens.device)
            multiples = (counts * self.block_size).clamp(max=torch.iinfo(tokens.dtype).max)
            self._multiples = multiples.to(tokens.dtype)
        return self._multiples

    def _first_columns(self, columns: int, device: torch.device) -> torch.Tensor:
        if self._offsets.numel() != columns:
            self._offsets = torch.arange(columns, device=device)
        return self._offsets
