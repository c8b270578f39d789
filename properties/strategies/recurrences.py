"""Batches for kernels of recurrences: rows of sequences, slots of a pool, and memory around all of it that no kernel may read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, chain
from math import prod
from random import Random

from hypothesis import strategies as st

from properties.strategies.orders import schedules
from statecheck.case.values import (
    ITEM_SIZES,
    Call,
    Let,
    Overwrite,
    Returned,
    Step,
    Tensor,
    Value,
    View,
    boolean,
    call,
    dense_strides,
    int32,
    raw_floats,
)
from statecheck.subject.profile import DOCUMENTS, Profile

RECURRENT = (
    "conv_update",
    "ssm_update",
    "delta_recurrent",
    "gdn_recurrent",
    "kda_recurrent",
    "linear_recurrent",
)
"""Functions that go through a row token by token: a row may end anywhere, and go on."""
CHUNKED = ("conv_prefill", "ssd_prefill", "delta_chunk", "gdn_chunk", "kda_chunk", "linear_chunk")
"""Functions that cut rows into chunks: rows may begin without a state."""
_ALL = (*RECURRENT, *CHUNKED)
CONTINUED_BY = dict(zip(CHUNKED, RECURRENT, strict=True))
NO_SLOT = -1
"""Of a draft whose state is not kept."""
NO_REQUEST = 99
"""The sequence of a row of padding."""
LIGHTNING_CHUNK = 256
SSD_CHUNK, SSD_WIDE_CHUNK = 16, 128
"""Tokens of a chunk, where the caller chooses: less than a tile of a kernel has, and more."""


@dataclass(frozen=True)
class Row:
    """A row of a batch: so many tokens of a sequence from its token `first` on, and where its state is.

    Args:
        slots: the slot; with drafts one for each token, or `NO_SLOT`. None for a row of padding.
        accepted: with drafts, the tokens of the last step that were accepted.
        is_fresh: it begins without a state.
    """

    sequence: int
    first: int
    length: int
    slots: tuple[int, ...] | None
    accepted: int = 1
    is_fresh: bool = False

    def without_slots(self, columns: Collection[int]) -> Row:
        """The same without slots for the states behind these tokens, counted from 1."""
        slots = self.slots or ()
        return replace(
            self, slots=tuple(NO_SLOT if at in columns else slot for at, slot in enumerate(slots, 1))
        )

    def with_one_slot(self) -> Row:
        """The same with the first of its slots alone."""
        return replace(self, slots=self.slots and tuple(slot for slot in self.slots if slot != NO_SLOT)[:1])


@dataclass(frozen=True)
class Sizes:
    """Heads of queries and keys (or groups), heads of values, and the shape of a head's state. Of a convolution: channels, and its width as `keys`."""

    heads: int
    value_heads: int
    keys: int
    values: int


@dataclass(frozen=True)
class Numbers:
    """Numbers of a tensor: multiples of `unit` from `low` to `high`, which every float type holds exactly.

    On average one number in `every` is drawn, and the others are zero; `take_all` draws all.
    """

    low: int
    high: int
    unit: float
    every: int = 1

    def of(self, key: str, count: int, *, take_all: bool = False) -> list[float]:
        random = Random(key)
        return [
            random.randint(self.low, self.high) * self.unit
            if take_all or self.every == 1 or random.randrange(self.every) == 0
            else 0.0
            for _ in range(count)
        ]

    def finer(self, bits: int) -> Numbers:
        """The same range in units so small that numbers have so many bits."""
        most = max(abs(self.low), abs(self.high))
        parts = 2**bits >> (most - 1).bit_length()
        return replace(self, low=self.low * parts, high=self.high * parts, unit=self.unit / parts)


@dataclass(frozen=True)
class Batch:
    """A call of a function, with the memory that it is made on.

    Args:
        options: what a function may do besides: norms of queries and keys, a bias, an activation, a gate, and so on.
        slots: how many of the pool there are, without those that stand for none.
        drafts: how many a row may have; None: rows have one slot each and no accepted counts.
        packed: inputs of a token lie behind each other in one memory, as a projection leaves them.
        spare_tokens: behind the last row.
        gap: elements between the slots of the pool.
        column: slots are a column, or a few neighbouring ones, of a wider table.
        poisoned: what no kernel may read is NaN, or else numbers.
        far: slots before those that have contents.
        apart: inputs of neighbouring tokens lie so many elements apart; 0: as close as they fit.
    """

    function: str
    sizes: Sizes
    rows: tuple[Row, ...]
    slots: int
    seed: int = 0
    dtype: str = "float32"
    options: frozenset[str] = frozenset()
    drafts: int | None = None
    packed: bool = False
    spare_tokens: int = 0
    gap: int = 0
    column: bool = False
    poisoned: bool = True
    schedule: str = ""
    far: int = 0
    apart: int = 0
    profile: Profile = field(default=DOCUMENTS, repr=False)

    def of_release(self, profile: Profile) -> Batch:
        """The same in the conventions of a subject."""
        return replace(self, profile=profile)

    # What there is.

    @property
    def first_slot(self) -> int:
        """Slots are counted from the first that stands for a slot."""
        return self.far + (1 if 0 in self.profile.null_slots else 0)

    @property
    def tokens(self) -> int:
        return sum(row.length for row in self.rows) + self.spare_tokens

    @property
    def is_conv(self) -> bool:
        return self.function.startswith("conv")

    @property
    def state_dtype(self) -> str:
        """That of a convolution's inputs; else float32, or what a cache of decodes in the inputs' type has."""
        is_typed = self.function in RECURRENT and "typed states" in self.options
        return self.dtype if self.is_conv or is_typed else "float32"

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Of a slot."""
        if self.is_conv:
            return self.sizes.heads, self.sizes.keys - 1 + (self.drafts or 0)
        return self.sizes.value_heads, self.sizes.values, self.sizes.keys

    def pool(self, name: str) -> View:
        """The view of the pool: slots, then the state's shape, in the order of memory that the subject has chosen."""
        shape, (*outer, rows, columns) = self.state_shape, self.state_shape
        inner = dense_strides(shape)
        order = self.profile.state_order
        if not isinstance(order, str):
            order = order.get(self.function, "VK")
        if "window first" in self.options if self.is_conv else order == "KV":
            inner = (*dense_strides((*outer, columns, rows))[:-2], 1, rows)
        slot = prod(shape) + self.gap
        return View(name, self.state_dtype, (self.slots + self.first_slot, *shape), (slot, *inner), self.gap)

    # What lies in memory.

    def _numbers(self, name: str, *, begins_chunk: bool = False) -> Numbers:
        found = (_CHUNKED_NUMBERS if self.function in CHUNKED else {}).get(name) or _NUMBERS[name]
        is_wide = name == "A" and "wide chunks" in self.options
        if self.function in CHUNKED and ("slow" in self.options or is_wide):
            found = _FIRST_OF_A_CHUNK if name == "g" and begins_chunk else _SLOW.get(name, found)
            if self.function in self.profile.lightning and name == "decay":
                # Its chunks have four times as many tokens.
                found = replace(found, unit=found.unit * DOCUMENTS.chunk / LIGHTNING_CHUNK)
        if name == "dt" and {"slow", "softplus"} <= self.options and self.function in CHUNKED:
            found = _SOME_LONG_TIMES
        if name == "g" and "short memory" in self.options and self.function in CHUNKED:
            found = _SHORT_MEMORY
        if "steep" in self.options:
            found = _STEEP.get(name, found)
        if name in ("q", "k") and {"norm", "short keys"} <= self.options:
            found = _SHORT_KEYS
        if name == self._written and "few writes" in self.options and self.function in CHUNKED:
            found = replace(_LARGE_SHARES if name == "beta" else found, every=_FEW_WRITES)
        if name == "beta" and "short memory" in self.options and self.function in CHUNKED:
            found = _LARGE_SHARES
        if name == "g" and "kept" in self.options:
            found = replace(found, every=2)
        if "one sign" in self.options and name in _SIGNED:
            found = replace(found, low=0)
        if "all bits" in self.options:
            of_inputs = name in _TYPED or (
                name == "state" and (self.is_conv or self.state_dtype != "float32")
            )
            bits = _BITS_OF_GATES if name == "g" else _BITS_OF_FLOAT32
            found = found.finer(_BITS_OF_INPUTS if of_inputs else bits)
        return found

    @property
    def _written(self) -> str:
        """The input by which the states grow."""
        return {"ss": "x", "li": "v"}.get(self.function[:2], "beta")

    def _is_read(self, row: Row) -> bool:
        return row.slots is not None

    def _by_token(self, name: str, width: int) -> list[float]:
        """Numbers of every token on the axis, by its sequence and its place in it; of tokens of padding what no kernel may read."""
        found = list[float]()
        numbers, at_begin = self._numbers(name), self._numbers(name, begins_chunk=True)
        for row in self.rows:
            for at in range(row.first, row.first + row.length):
                # Of a row that begins with one of a sequence's first tokens, each of its chunks does.
                begins_chunk = at >= self.chunk and at % self.chunk <= _LAST_FIRST
                of_few = name == "k" and "few keys" in self.options
                key = f"{self.seed} {name} {row.sequence} {at % self._keys_of_a_row if of_few else at}"
                take_all = name == "beta" and self._is_crowded(row.sequence, at)
                found += (
                    (at_begin if begins_chunk else numbers).of(key, width, take_all=take_all)
                    if self._is_read(row)
                    else self._unread(width)
                )
        return found + self._unread(width * self.spare_tokens)

    @property
    def _is_crowd(self) -> bool:
        """Whether neighbours write one after the other, all to the same key where a row has few, so that each takes away nearly all that the others took away."""
        return self.seed % 2 == 1

    @property
    def _keys_of_a_row(self) -> int:
        return 1 if self._is_crowd else _FEW_KEYS

    def _is_crowded(self, sequence: int, token: int) -> bool:
        """Whether the token is one of neighbours that all write, where few do: those around the end of a sub-chunk, or around any token of the chunk."""
        if not self._is_crowd:
            return False
        chunk, place = divmod(token + _CROWD // 2, self.chunk)
        random = Random(f"{self.seed} crowd {sequence} {chunk}")
        begin = random.randrange(0, self.chunk, _SUB_CHUNK if random.randrange(2) else 1)
        return begin <= place < begin + _CROWD

    def _unread(self, count: int) -> list[float]:
        return [float("nan") if self.poisoned else 3.0] * count

    def let_pool(self, name: str) -> list[Step]:
        """The pool: the state of each row in its slots, and what no kernel may read elsewhere."""
        view = self.pool(name)
        assert view.strides is not None
        begins = self.far * view.strides[0]
        size = view.offset + view.strides[0] * view.shape[0]
        memory = self._unread(size - begins)
        inner = Tensor(view.dtype, self.state_shape, None, view.strides[1:])
        places = tuple(inner.positions())
        for row in self.rows:
            if row.slots is None or row.is_fresh:
                continue
            for column, slot in enumerate(row.slots):
                if slot == NO_SLOT:
                    continue
                key = f"{self.seed} state {row.sequence} {column}"
                start = view.offset + (slot + self.first_slot) * view.strides[0] - begins
                for place, number in zip(places, self._numbers("state").of(key, len(places)), strict=True):
                    memory[start + place] = number
        raw, bytes_of_one = raw_floats(memory, view.dtype), ITEM_SIZES[view.dtype]
        if not self.far:
            return [Let(name, Tensor("uint8", (len(raw),), raw))]
        window = View(name, "uint8", (len(raw),), None, begins * bytes_of_one)
        return [
            Let(name, Tensor("uint8", (size * bytes_of_one,), None)),
            Let(self._window(name), window),
            Overwrite(self._window(name), raw),
        ]

    def _window(self, pool: str) -> str:
        """The part of a pool that has contents."""
        return f"{pool}_used" if self.far else pool

    def _inputs(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Inputs that every token has, and their shapes without the tokens."""
        heads, value_heads, keys, values = (getattr(self.sizes, name) for name in _SIZES)
        if self.is_conv:
            yield "x", (heads,)
        elif self.function.startswith("ss"):
            yield from (("x", (value_heads, values)), ("B", (heads, keys)), ("C", (heads, keys)))
            if "gate" in self.options:
                yield "z", (value_heads, values)
        else:
            yield from (("q", (heads, keys)), ("k", (heads, keys)), ("v", (value_heads, values)))

    def _views(self, number: int) -> tuple[list[Step], dict[str, Value]]:
        """The inputs of every token, in one memory if they are packed; a gate is of another projection than the rest."""
        inputs = dict(self._inputs())
        lets, views = list[Step](), dict[str, Value]()
        size = ITEM_SIZES[self.dtype]
        columns = {name: self._by_token(name, prod(shape)) for name, shape in inputs.items()}
        packed = tuple(name for name in inputs if name != "z" or self.apart)
        alone = [(name,) for name in inputs if not self.packed or name not in packed]
        groups = [packed, *alone] if self.packed else alone
        for group in groups:
            widths = [prod(inputs[name]) for name in group]
            gap = 3 if self.packed else len(views) if "strided parameters" in self.options else 0
            stride, memory = self.apart or sum(widths) + gap, list[list[float]]()
            for token in range(self.tokens):
                own = [
                    columns[name][token * width : (token + 1) * width]
                    for name, width in zip(group, widths, strict=True)
                ]
                memory.append([*chain.from_iterable(own), *self._unread(gap)])
            held = f"{'inputs' if self.packed and group == packed else group[0]}{number}"
            raw = [raw_floats(values, self.dtype) for values in memory]
            if self.apart:
                lets.append(Let(held, Tensor("uint8", (stride * size * self.tokens,), None)))
                for token, of_token in enumerate(raw):
                    window = View(held, "uint8", (len(of_token),), None, token * stride * size)
                    lets += [Let(f"{held}_{token}", window), Overwrite(f"{held}_{token}", of_token)]
            else:
                lets.append(Let(held, Tensor("uint8", (sum(map(len, raw)),), b"".join(raw))))
            for name, offset in zip(group, accumulate(widths, initial=0), strict=False):
                shape = inputs[name]
                views[name] = View(
                    held, self.dtype, (self.tokens, *shape), (stride, *dense_strides(shape)), offset
                )
        return lets, views

    def _parameter(
        self, number: int, name: str, shape: Sequence[int], dtype: str = "float32"
    ) -> tuple[Let, View]:
        """Numbers of the layer: the same for every batch."""
        apart = 2 if "strided parameters" in self.options and name in _STRIDED else 1
        values = self._numbers(name).of(f"{self.seed} {name}", prod(shape))
        held = f"{name}{number}"
        raw = raw_floats([one for value in values for one in (value, *self._unread(apart - 1))], dtype)
        strides = tuple(apart * stride for stride in dense_strides(tuple(shape))) if apart > 1 else None
        return Let(held, Tensor("uint8", (len(raw),), raw)), View(held, dtype, tuple(shape), strides)

    def _gates(self, number: int, name: str, shape: tuple[int, ...]) -> tuple[Let, View]:
        """Float32 numbers of every token."""
        width, gap = prod(shape), 2 if "strided gates" in self.options else 0
        values, memory = self._by_token(name, width), list[float]()
        for token in range(self.tokens):
            memory += values[token * width : (token + 1) * width] + self._unread(gap)
        held, raw = f"{name}{number}", raw_floats(memory, "float32")
        strides = (width + gap, *dense_strides(shape))
        return Let(held, Tensor("uint8", (len(raw),), raw)), View(
            held, "float32", (self.tokens, *shape), strides
        )

    def _slots(self) -> Tensor:
        width = 1 if self.drafts is None or self.is_conv else 1 + self.drafts
        null = self.profile.null_slots[0]
        rows = [
            [null if slot == NO_SLOT else slot + self.first_slot for slot in row.slots]
            if row.slots is not None
            else [null] * width
            for row in self.rows
        ]
        of_tokens = self.drafts is not None and not self.is_conv
        shape = (len(rows), width) if of_tokens else (len(rows),)
        flat = tuple(slot for row in rows for slot in ((77, *row, 77) if self.column else row))
        if not self.column:
            return Tensor("int32", shape, flat)
        return Tensor("int32", shape, flat, (width + 2, 1) if of_tokens else (3,), 1)

    def steps(self, number: int = 0, pool: str = "") -> list[Step]:
        """The memory, and the call on it.

        Args:
            number: of the call in its example.
            pool: of an earlier call, that this call goes on with.
        """
        lets, arguments = self._views(number)
        heads, value_heads, keys, _values = (getattr(self.sizes, name) for name in _SIZES)

        def given(name: str, made: tuple[Let, View]) -> None:
            lets.append(made[0])
            arguments[name] = made[1]

        if self.is_conv:
            given("weight", self._parameter(number, "weight", (heads, keys), self.dtype))
            arguments["bias"] = None
            if "bias" in self.options:
                given("bias", self._parameter(number, "bias", (heads,), self.dtype))
            arguments["activation"] = "silu" if "activation" in self.options else None
        elif self.function.startswith("ss"):
            self._ssm(number, given, arguments)
        else:
            arguments["scale"] = 0.5
            if not self.function.startswith("linear"):
                given("beta", self._gates(number, "beta", (value_heads,)))
                arguments["qk_l2norm"] = "norm" in self.options
            if self.function.startswith("kda"):
                given("g", self._gates(number, "g", (value_heads, keys)))
            elif self.function.startswith("gdn"):
                given("g", self._gates(number, "g", (value_heads,)))
            elif {"decay", "constant decay"} <= self.options:
                let, view = self._parameter(number, "decay", (value_heads,))
                given("g", (let, replace(view, shape=(self.tokens, value_heads), strides=(0, 1))))
            elif "decay" in self.options:
                given("g", self._gates(number, "g", (value_heads,)))
            else:
                arguments["g"] = None
        if not pool:
            pool = f"states{number}"
            lets += self.let_pool(pool)
        arguments |= {
            "states": self.pool(pool),
            "slots": self._slots(),
            "query_start_loc": int32(list(accumulate((row.length for row in self.rows), initial=0))),
            "num_accepted": int32([row.accepted for row in self.rows]) if self.drafts is not None else None,
            "has_state": boolean([not row.is_fresh for row in self.rows]),
            "chunk_size": self.chunk,
        }
        names = _ARGUMENTS[self.function]
        made: Call = call(
            f"Recurrences.{self.function}",
            observes=(self._window(pool),),
            schedule=self.schedule,
            **{name: arguments[name] for name in names},
        )
        return [*lets, made]

    def _ssm(
        self, number: int, given: Callable[[str, tuple[Let, View]], None], arguments: dict[str, Value]
    ) -> None:
        """Mamba-2 has one decay for a head, which kernels are handed as a view that repeats it; Mamba-1 has a matrix."""
        value_heads, values, keys = self.state_shape
        one_decay = self.function == "ssd_prefill" or "one decay" in self.options
        one_time = one_decay and (self.function == "ssd_prefill" or "many times" not in self.options)
        for name, shape in (("dt", (value_heads,)), ("A", (value_heads,)), ("dt_bias", (value_heads,))):
            is_one = one_decay if name == "A" else one_time
            own = shape if is_one else (*shape, values) if name != "A" else (*shape, values, keys)
            made = self._gates(number, name, own) if name == "dt" else self._parameter(number, name, own)
            let, view = made
            if is_one and self.function != "ssd_prefill":
                wide = (values, keys) if name == "A" else (values,)
                view = replace(
                    view,
                    shape=(*view.shape, *wide),
                    strides=(*(view.strides or dense_strides(view.shape)), *(0 for _ in wide)),
                )
            if name != "dt_bias" or "softplus" in self.options:
                given(name, (let, view))
            else:
                arguments[name] = None
        arguments["dt_softplus"] = "softplus" in self.options
        arguments["D"] = None
        arguments.setdefault("z", None)
        if "skip" in self.options:
            let, view = self._parameter(number, "D", (value_heads, values))
            if one_decay and "one skip" in self.options:
                view = replace(view, strides=((view.strides or (values, 1))[1], 0))
            given("D", (let, view))

    # What came of it.

    def output(self, outcome: Returned, row: int) -> bytes:
        """The bytes of a row's outputs."""
        result = outcome.value
        width = prod(result.shape[1:])
        first = sum(earlier.length for earlier in self.rows[:row])
        values = result.values()[first * width : (first + self.rows[row].length) * width]
        return raw_floats(values, result.dtype)

    def state(self, outcome: Returned, slot: int) -> bytes:
        """The bytes of a slot's elements, in row-major order."""
        ((name, held),) = outcome.after
        view = self.pool(name)
        assert view.strides is not None
        size, raw = ITEM_SIZES[view.dtype], bytes(held.elements)
        start = view.offset + (slot + self.first_slot - self.far) * view.strides[0]
        inner = Tensor(view.dtype, self.state_shape, None, view.strides[1:], start)
        return b"".join(raw[at * size : (at + 1) * size] for at in inner.positions())

    @property
    def chunk(self) -> int:
        """Tokens of a chunk."""
        if self.function == "ssd_prefill":
            return SSD_WIDE_CHUNK if "wide chunks" in self.options else SSD_CHUNK
        if self.function in self.profile.lightning:
            return LIGHTNING_CHUNK
        return 1 if self.is_conv else self.profile.chunk

    # The same otherwise.

    def of_functions(self, offered: Sequence[str]) -> Batch:
        """The same for one of these functions, where it is for another one, without what that function does not take."""
        found = self
        if self.function not in offered:
            function = offered[_ALL.index(self.function) % len(offered)]
            own, other = _sizes_of(self.function), _sizes_of(function)
            sizes = other[own.index(self.sizes) % len(other)] if self.sizes in own else other[0]
            cut = [replace(row, length=min(row.length, max(_AROUND_CHUNKS))) for row in self.rows]
            found = replace(self, function=function, sizes=sizes, rows=tuple(cut))
        if (
            not found.is_conv
            and found.sizes.heads > _MOST_HEADS
            and found.function not in self.profile.large_grids
        ):
            found = replace(found, sizes=replace(found.sizes, heads=_MOST_HEADS, value_heads=_MOST_HEADS))
        if found.function in self.profile.without_shared_heads:
            found = replace(found, sizes=replace(found.sizes, value_heads=found.sizes.heads))
        if found.function in self.profile.lightning:
            found = found._as_lightning()
        if found.function in self.profile.chunks_of_batches and self.seed % 3 == 0:
            found = found._one_behind_a_chunk()
        if found.is_conv:
            found = replace(found, rows=tuple(row.with_one_slot() for row in found.rows))
        if found.function in self.profile.without_drafts and found.drafts is not None:
            rows = [replace(row.with_one_slot(), accepted=1) for row in found.rows]
            found = replace(found, drafts=None, rows=tuple(rows))
            if any(row.length > 1 for row in rows):
                found = replace(found, options=found.options - {"typed states"})
        return found

    def _as_lightning(self) -> Batch:
        """The same for lightning attention: one row is long, for a part of the batches more than a chunk. States are large, so that a long row has one head."""
        longest = max(self.rows, key=lambda row: row.length)
        lengths = [
            _LONG_LIGHTNING[row.length]
            if row is longest and row.length in _LONG_LIGHTNING
            else min(row.length, LIGHTNING_CHUNK // 4 if row is longest else _MOST_TOKENS)
            for row in self.rows
        ]
        heads = 1 if longest.length > _MOST_TOKENS else 2
        # With other decays nothing of a state before its block is left behind three sub-chunks. With these it hardly matters by how many tokens a state decays.
        is_slow = longest.length in _LONG_LIGHTNING and "steep" not in self.options and bool(self.seed % 3)
        is_short = self.function in RECURRENT and self.drafts is None
        width = _LIGHTNING_WIDTHS[self.seed % 2 if is_short else 0]
        return replace(
            self,
            sizes=Sizes(heads, heads, width, width),
            dtype="float32",
            options=self.options | {"constant decay", *(("slow",) if is_slow else ())},
            rows=tuple(replace(row, length=length) for row, length in zip(self.rows, lengths, strict=True)),
        )

    def _one_behind_a_chunk(self) -> Batch:
        """The same with a second request that goes on from a state one token behind the begin of a chunk: whole chunks, or none, and a token lie before it."""
        real = [at for at, row in enumerate(self.rows) if row.slots is not None]
        if len(real) < 2:
            return self
        rows = list(self.rows)
        rows[: real[1]] = [replace(row, length=0) if row.slots is None else row for row in rows[: real[1]]]
        rows[real[0]] = replace(rows[real[0]], length=rows[real[0]].length // self.chunk * self.chunk + 1)
        rows[real[1]] = replace(rows[real[1]], is_fresh=False)
        return replace(self, rows=tuple(rows))

    def far_away(self) -> Batch:
        """The same in a pool whose used slots begin behind 2**31 elements."""
        strides = self.pool("").strides
        assert strides is not None
        return replace(self, far=2**31 // strides[0] + 1)

    def wide_tokens(self) -> Batch:
        """The same with its inputs in one memory, in which the last token begins behind 2**31 elements."""
        return replace(self, packed=True, apart=2**31 // max(1, self.tokens - 1) + 1)

    def alone(self, row: int) -> Batch:
        """A row of the batch without the others."""
        return replace(self, rows=(self.rows[row],), spare_tokens=0)

    def relabelled(self, slots: Sequence[int]) -> Batch:
        """Each slot with another number."""
        numbers = {NO_SLOT: NO_SLOT} | dict(enumerate(slots))
        rows = [
            replace(row, slots=None if row.slots is None else tuple(numbers[slot] for slot in row.slots))
            for row in self.rows
        ]
        return replace(self, rows=tuple(rows))


_SIZES = ("heads", "value_heads", "keys", "values")
_ROWS = ("states", "slots", "query_start_loc")
_NAMED: Mapping[str, tuple[str, ...]] = {
    "conv": ("x", "weight", "bias", "activation"),
    "ssm": ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "dt_softplus"),
    "ssd": ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "dt_softplus", "chunk_size"),
    "delta": ("q", "k", "v", "beta", "scale", "qk_l2norm"),
    "gdn": ("q", "k", "v", "g", "beta", "scale", "qk_l2norm"),
    "kda": ("q", "k", "v", "g", "beta", "scale", "qk_l2norm"),
    "linear": ("q", "k", "v", "g", "scale"),
}
_ARGUMENTS = {
    name: (*_NAMED[name.partition("_")[0]], *_ROWS, "num_accepted" if name in RECURRENT else "has_state")
    for name in (*RECURRENT, *CHUNKED)
}
"""The arguments of each function, as docs/recurrences.md has them."""

_NUMBERS = {
    **dict.fromkeys(("x", "v", "z", "state"), Numbers(-8, 8, 0.25)),
    **dict.fromkeys(("q", "k", "B", "C", "weight", "bias", "D"), Numbers(-4, 4, 0.25)),
    "g": Numbers(-12, 0, 0.125),
    # The decay of a head. Kernels divide by the decay of a chunk, whose inverse is a finite float32 here.
    "decay": Numbers(-10, 0, 0.125),
    "beta": Numbers(0, 8, 0.125),
    "dt": Numbers(0, 8, 0.125),
    # A softplus of times around 2 is neither a line nor an exponential.
    "dt_bias": Numbers(-8, 16, 0.125),
    "A": Numbers(-8, -1, 0.25),
}
_CHUNKED_NUMBERS = {
    # A sum of absolute values grows with each token by the square of a key: over a hundred tokens a bound stays small where keys are short.
    "k": Numbers(-1, 1, 0.125),
    "beta": Numbers(0, 8, 0.0625),
    "g": Numbers(-4, 0, 0.0625),
}

_STEEP = {
    # What is left of a token soon is nothing, and the opposite of a chunk's sum is no float32 any more.
    **dict.fromkeys(("g", "decay"), Numbers(-12, 0, 1.0)),
    # Times behind the threshold of a softplus, which is 20, and behind the largest exponent of float32.
    "dt": Numbers(0, 24, 4.0),
}
# A third of a state is left behind 64 tokens, so that what later tiles of a chunk read of it can be seen.
_SLOW = {
    **dict.fromkeys(("g", "decay"), Numbers(-4, 0, 2.0**-7)),
    "A": Numbers(-8, -1, 2.0**-7),
}
_SOME_LONG_TIMES = Numbers(16, 40, 0.125, every=6)
"""Where a softplus is nearly a line, what is left of a state shows the rest. `dt` is 0 for most tokens, so that a state decays as slowly as with other times."""
_SIGNED = ("x", "q", "k", "v", "B", "C", "D", "state")
"""Inputs that are not negative with "one sign". The recurrence on absolute values, which the bound is computed from, is the recurrence then."""
_SHORT_MEMORY = Numbers(-16, -4, 0.0625)
"""A few tokens are left of what was written, so that a bound stays small where each token writes, and what a token took away of its neighbours can be seen."""
_FIRST_OF_A_CHUNK = Numbers(-8, 0, 0.125)
"""So that of a state that is kept a decay at the begin of a chunk can be seen, and what is left of it, too."""
_LAST_FIRST = 2
"""The last token of a sequence that a row begins with."""
_SHORT_KEYS = Numbers(-1, 1, 2.0**-10)
"""Their squares are about as large as the small constant of a norm."""
_FEW_WRITES = 8
"""Of so many tokens one writes. What others leave is not rounded anew, so that a bound stays small over a whole chunk."""
_SUB_CHUNK, _CROWD = 16, 7
"""Tokens of a kernel's sub-chunk, and how many neighbours around its end all write. What the neighbours wrote is within what a token takes away."""
_LARGE_SHARES = Numbers(8, 16, 0.0625)
"""So that what a token takes away of what another one took away can be seen."""
_FEW_KEYS = 3
"""So many keys a row has, so that what a token takes away was written far before it, and what that took away, too."""
_TYPED = ("x", "q", "k", "v", "B", "C", "z", "weight", "bias")
_STRIDED = ("weight", "A", "D", "dt_bias")
"""Parameters that may be views."""
_BITS_OF_INPUTS, _BITS_OF_FLOAT32 = 7, 14
"""As many as bfloat16 holds exactly; and more than any type of a product's factors."""
_BITS_OF_GATES = 22
"""So many that a sum over a chunk is rounded. Where half of the tokens keep all of a state, it may rise from a token to the next."""

_SMALL = (
    *(Sizes(1, 1, 4, 2), Sizes(1, 2, 3, 5), Sizes(2, 4, 8, 8)),
    *(Sizes(1, 1, 2, 36), Sizes(1, 2, 3, 40), Sizes(1, 1, 68, 2)),
)
_MANY_KEYS = Sizes(1, 1, 200, 2)
_TILES = (
    Sizes(1, 1, 8, 8),
    Sizes(2, 4, 8, 8),
    _MANY_KEYS,
    Sizes(1, 1, 8, 72),
    Sizes(1, 2, 16, 8),
    _MANY_KEYS,
)
_MANY_CHANNELS, _FEW_TOKENS = 260, 10
_GATED_WIDTH = 3
"""Weights of the convolutions of LFM2, which have neither a bias nor an activation."""
_MANY_TOKENS = 8200
"""More than a table of 1,024 programs of eight tokens has."""
_MOST_HEADS = 4
"""Heads of functions that are not in `Profile.large_grids`."""
_MANY_PAIRS, _PAST_A_CHUNK = 257, 65
"""More pairs of a chunk and a head than 256, see `Profile.large_grids`, and the tokens of a row with a second chunk."""
_CHANNELS = tuple(
    Sizes(channels, channels, width, 1)
    for channels in (3, _MANY_CHANNELS, _MANY_CHANNELS)
    for width in (2, 3, 4)
) + (Sizes(5, 5, 4, 1), Sizes(2, 2, 5, 1), Sizes(3, 3, 6, 1))
"""Few, since kernels are compiled for each; of each kind some are more than a tile of a kernel has, which is 32, 64 or 256.

The kernels of the delta rule have up to four blocks of 64 keys, and those of SSD read states of more than 128 keys in several steps.
"""
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "conv": ("bias", "activation", "window first", "strided parameters"),
    "ss": (
        *("gate", "softplus", "skip", "one skip", "one decay", "many times", "typed states"),
        *("strided parameters", "wide chunks", "one sign", "few writes", "slow", "steep"),
    ),
    "linear": (
        "decay",
        "constant decay",
        "one sign",
        "few writes",
        "slow",
        "steep",
        "kept",
        "strided gates",
        "typed states",
    ),
    "delta": ("norm", "short keys", "few keys", "few writes", "typed states"),
    **dict.fromkeys(
        ("gdn", "kda"),
        (
            *("norm", "short keys", "few keys", "few writes", "typed states"),
            *("slow", "steep", "short memory", "kept"),
        ),
    ),
}
_ALL_OPTIONS = sorted({"all bits", *chain.from_iterable(_OPTIONS.values())})
_SELDOM = {"few writes", "steep", "short memory", "typed states"}
"""Options with which less is written, a state is soon forgotten, or a bound is wide."""
_USUAL = {"bias", "decay", "one decay", "skip", "softplus"}
"""Options of most layers."""
_SOMETIMES, _MOSTLY = st.sampled_from((False, True, False)), st.sampled_from((False, True, True))
_MOST_TOKENS = 4
_LIGHTNING_WIDTHS = (64, 128)
"""Keys and values of a head; the second one where rows are short."""
_LONG_LIGHTNING = {64: 250, 65: 260, 70: 330, 130: 130}
"""Tokens of a long row in place of these: a chunk of three sub-chunks of 64 and a part, a second chunk with less than one sub-chunk, a second one of one and a part, and a
chunk of two and a part. In a first chunk without a state nothing is hidden by the declared defect of vLLM's states."""
_FAR_READS = {"few keys", "few writes", "norm", "slow"}
"""With these a token of the last sub-chunk shows what it takes away of all earlier ones."""
_NEAR_READS = {"few keys", "norm", "short memory"}
"""With these a token shows what it takes away of its neighbours, wherever it is."""
_LATE_TOKENS = (64, 65, 70, 130)
"""Rows that reach the last sub-chunk, or a second or third chunk."""
_AROUND_CHUNKS = (15, 16, 17, 31, 32, 47, 63, 64, 65, 70, 130)
"""Rows around a whole chunk, and some that end inside of each of its sub-chunks."""


def _sizes_of(function: str) -> tuple[Sizes, ...]:
    if function.startswith("conv"):
        return _CHANNELS
    return _TILES if function in CHUNKED else _SMALL


@cache
def _lengths(group: Sequence[str]) -> st.SearchStrategy[int]:
    few = st.integers(0, _MOST_TOKENS)
    return few if group is RECURRENT else few | st.sampled_from(_AROUND_CHUNKS)


@st.composite
def batches(
    draw: st.DrawFn,
    group: tuple[str, ...],
    *,
    drafts: bool | None = None,
    padding: bool = True,
    many_programs: bool = False,
) -> Batch:
    """Batches of a function of the group.

    Args:
        drafts: whether rows have drafts; None: either.
        padding: whether there are rows and tokens of padding.
        many_programs: whether a convolution may have a prompt that fills a table of programs, and KDA, where `Profile.large_grids` names it, many heads.
    """
    has_drafts = group is RECURRENT and (draw(st.booleans()) if drafts is None else drafts)
    most_drafts = draw(st.sampled_from((0, 1, 2, 3, 3))) if has_drafts else None
    columns = 1 if most_drafts is None else 1 + most_drafts
    lengths = _lengths(group) if most_drafts is None else st.integers(0, columns)
    are_plain = group is RECURRENT and drafts is None and draw(_SOMETIMES if has_drafts else st.booleans())
    if are_plain:
        # Layers hand plain decodes over without the starts of rows, and some to slots that they did not come from.
        lengths = st.just(1)
    drawn = draw(
        st.lists(
            st.tuples(st.integers(0, _LAST_FIRST), lengths, st.integers(1, columns), st.booleans()),
            min_size=1,
            max_size=3,
        )
    )
    slots = len(drawn) * columns + draw(st.integers(0, 2))
    order = draw(st.permutations(range(slots)))
    rows = [
        Row(
            number,
            first,
            length,
            tuple(order[number * columns : (number + 1) * columns]),
            accepted,
            is_fresh and group is CHUNKED,
        )
        for number, (first, length, accepted, is_fresh) in enumerate(drawn)
    ]
    if padding and columns > 1 and draw(st.booleans()):
        without = draw(st.sets(st.integers(1, columns), min_size=1))
        rows = [row.without_slots(without - {row.accepted}) for row in rows]
    if padding and draw(st.booleans()):
        rows.insert(draw(st.integers(0, len(rows))), Row(NO_REQUEST, 0, draw(st.integers(0, 1)), None))
    function = draw(st.sampled_from(group))
    sizes = draw(st.sampled_from(range(len(_CHANNELS))).map(lambda number: _size(function, number)))
    if sizes.heads == _MANY_CHANNELS:
        # Numbers of hundreds of channels take long to draw and to compare.
        rows = [replace(row, length=min(row.length, _FEW_TOKENS)) for row in rows]
    elif many_programs and function == "kda_chunk" and draw(st.integers(0, 5)) == 5:
        longest = max((row for row in rows if row.slots is not None), key=lambda row: row.length)
        rows = [
            replace(row, length=_PAST_A_CHUNK if row is longest else min(row.length, _MOST_TOKENS))
            for row in rows
        ]
        chunks = sum(-(-row.length // DOCUMENTS.chunk) for row in rows if row.slots is not None)
        heads = -(-_MANY_PAIRS // chunks)
        sizes = Sizes(heads, heads, 8, 2)
    elif many_programs and function == "conv_prefill" and draw(st.integers(0, 5)) == 5:
        rows = [replace(row, length=_MANY_TOKENS) if row.sequence == 0 else row for row in rows]
    options = {
        option
        for option in _ALL_OPTIONS
        if draw(_SOMETIMES if option in _SELDOM else _MOSTLY if option in _USUAL else st.booleans())
    }
    if group is CHUNKED and draw(_SOMETIMES):
        reads, others = (_FAR_READS, _NEAR_READS) if draw(st.booleans()) else (_NEAR_READS, _FAR_READS)
        options = (options | reads) - (others - reads) - {"steep", "short keys"}
        if not function.startswith("conv"):
            longest = max(rows, key=lambda row: row.length)
            length = max(longest.length, draw(st.sampled_from((0, *_LATE_TOKENS))))
            rows = [replace(row, length=length) if row is longest and row.slots else row for row in rows]
    dtype = draw(st.sampled_from(("float32", "bfloat16", "float16")))
    if sizes.keys == _GATED_WIDTH and function.startswith("conv") and draw(st.booleans()):
        # SGLang has kernels of its own for those of LFM2.
        dtype, options = "bfloat16", options - {"bias", "activation"}
    if not (are_plain or has_drafts):
        # A kernel that takes a row in one go rounds a state once, and one that takes a token at a time after each.
        options -= {"typed states"}
    return Batch(
        function,
        sizes,
        tuple(rows),
        slots,
        draw(st.integers(0, 15)),
        dtype,
        frozenset(options),
        most_drafts,
        draw(st.booleans()),
        draw(st.integers(0, 2)) if padding else 0,
        draw(st.integers(0, 3)),
        draw(st.booleans()),
        draw(st.booleans()),
        "" if any(row.length == _MANY_TOKENS for row in rows) else draw(schedules()),
    )


def _size(function: str, number: int) -> Sizes:
    sizes = _sizes_of(function)
    return sizes[number % len(sizes)]
