"""Answers about kernels of recurrences: outputs and states within their bounds, and every other byte of the pool as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from math import inf, prod
from typing import Any

from oracle.recurrences import conv, delta, linear, ssm
from oracle.recurrences.bounds import UNIT_ROUNDOFF, Near, Roundoff, near
from oracle.recurrences.heads import Steps, delta_heads, in_chunks_of_batches, linear_heads, ssm_heads
from oracle.recurrences.rows import Recurrent, Rows, run_rows
from statecheck.case.values import (
    ITEM_SIZES,
    Bounded,
    Tensor,
    Value,
    View,
    dense_strides,
    floats_of,
    raw_floats,
)
from statecheck.reference import answers
from statecheck.subject.profile import Profile

Known = dict[str, Value]
Answer = tuple[Value, dict[str, Value]]


@dataclass(frozen=True)
class FloatMemory:
    """What views of float memory hold: numbers, and their errors where these are not 0."""

    known: Known

    def near(self, view: View) -> list[Near]:
        """The elements of a view, in row-major order."""
        size = ITEM_SIZES[view.dtype]
        held = self.known[view.of]
        if held is None:
            # Tokens lie far apart, and each has a name of its own.
            of_token = replace(view, shape=view.shape[1:], strides=(view.strides or ())[1:])
            tokens = range(view.shape[0])
            return [number for at in tokens for number in self.near(replace(of_token, of=f"{view.of}_{at}"))]
        raw, errors = (held.raw, held.near) if isinstance(held, Bounded) else (bytes(held.elements), ())
        known = {at: Near(value, bound) for at, value, bound in errors}
        values = floats_of(raw[: len(raw) // size * size], view.dtype)
        places = Tensor(view.dtype, view.shape, None, view.strides, view.offset).positions()
        return [known.get(place) or Near(values[place]) for place in places]

    def nested(self, view: View | None) -> Any:
        """The numbers of a view as nested lists; None of None."""
        return None if view is None else _nested([number.value for number in self.near(view)], view.shape)


def _nested(flat: Sequence[Any], shape: Sequence[int]) -> Any:
    if len(shape) == 1:
        return list(flat)
    size = prod(shape[1:])
    return [_nested(flat[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]


def _of_used_slots(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """The answer for a pool of which its end alone is known, as `<pool>_used`: the same as for a pool that begins there."""

    @wraps(answer)
    def shifted(memory: Known, profile: Profile, states: View, slots: Tensor, **given: Any) -> Answer:
        used = memory.get(f"{states.of}_used")
        if used is None:
            return answer(memory=memory, profile=profile, states=states, slots=slots, **given)
        assert isinstance(used, Tensor)
        stride = (states.strides or dense_strides(states.shape))[0]
        far = (
            states.shape[0] - (len(used.elements or ()) // ITEM_SIZES[states.dtype] - states.offset) // stride
        )
        near = replace(states, of=f"{states.of}_used", shape=(states.shape[0] - far, *states.shape[1:]))
        numbers = tuple(slot if slot in profile.null_slots else slot - far for slot in slots.values())
        return answer(
            memory=memory, profile=profile, states=near, slots=Tensor("int32", slots.shape, numbers), **given
        )

    return shifted


def _rows(
    slots: Tensor,
    starts: Tensor,
    profile: Profile,
    accepted: Tensor | None = None,
    has_state: Tensor | None = None,
) -> Rows:
    values = slots.values()
    return Rows(
        starts.values(),
        [(slot,) for slot in values] if len(slots.shape) == 1 else slots.rows(),
        None if accepted is None else accepted.values(),
        None if has_state is None else [bool(flag) for flag in has_state.values()],
        profile.null_slots,
    )


def _roundoff(function: str, profile: Profile, inputs: str) -> Roundoff:
    chosen = profile.accumulates.get(function, "float32")
    if chosen not in ("dot", "input"):
        return Roundoff(UNIT_ROUNDOFF[chosen])
    return Roundoff.of_factors("tfloat32" if chosen == "dot" and inputs == "float32" else inputs)


def _changed(states: View, known: Known, new: Mapping[int, Sequence[Near | None]]) -> dict[str, Value]:
    """The pool with these elements in these slots, in row-major order within a slot; an element that is None stays as it was."""
    held = known[states.of]
    raw = bytearray(held.raw if isinstance(held, Bounded) else bytes(held.elements))
    kept = {at: (value, bound) for at, value, bound in held.near} if isinstance(held, Bounded) else {}
    size, strides = ITEM_SIZES[states.dtype], states.strides or dense_strides(states.shape)
    for slot, elements in new.items():
        inner = Tensor(states.dtype, states.shape[1:], None, strides[1:], states.offset + slot * strides[0])
        for place, element in zip(inner.positions(), elements, strict=True):
            if element is None:
                continue
            kept.pop(place, None)
            if element.bound:
                kept[place] = (element.value, element.bound)
            else:
                raw[place * size : (place + 1) * size] = raw_floats([element.value], states.dtype)
    near = tuple((at, *kept[at]) for at in sorted(kept))
    view = states.shape, tuple(strides), states.offset
    return {states.of: Bounded(states.dtype, (len(raw) // size,), bytes(raw), near, view)}


def _output(view: View, shape: Sequence[int], outputs: Mapping[int, Sequence[Near]]) -> Bounded:
    """The result: of tokens without an output anything."""
    width = prod(shape[1:])
    nothing = [Near(0.0, inf)] * width
    near = tuple(
        (token * width + at, one.value, one.bound)
        for token in range(shape[0])
        for at, one in enumerate(outputs.get(token, nothing))
    )
    return Bounded(view.dtype, tuple(shape), bytes(ITEM_SIZES[view.dtype] * prod(shape)), near)


def _flat(nested: Sequence[Any]) -> list[Near]:
    return [one for part in nested for one in (_flat(part) if isinstance(part, list) else [part])]


def _by_heads(
    function: str,
    output: View,
    steps: Steps,
    rows: Rows,
    states: View,
    known: Known,
    profile: Profile,
) -> Answer:
    """The answer of a recurrence whose state is a matrix for each head. `output` has the shape and the type of the result."""
    slots = _nested(FloatMemory(known).near(states), states.shape)
    found: Recurrent = run_rows(
        rows,
        states.shape[1],
        (states.shape[2], states.shape[3]),
        steps,
        dict(enumerate(slots)),
        roundoff=_roundoff(function, profile, output.dtype),
        output_type=output.dtype,
        state_type=states.dtype,
    )
    result = _output(output, output.shape, {token: _flat(one) for token, one in found.outputs.items()})
    return result, _changed(states, known, {slot: _flat(one) for slot, one in found.states.items()})


def _delta(function: str) -> Callable[..., Answer]:
    def answer(
        memory: Known,
        profile: Profile,
        q: View,
        k: View,
        v: View,
        beta: View,
        scale: float,
        qk_l2norm: bool,
        states: View,
        slots: Tensor,
        query_start_loc: Tensor,
        g: View | None = None,
        num_accepted: Tensor | None = None,
        has_state: Tensor | None = None,
    ) -> Answer:
        read = FloatMemory(memory)
        gates = read.nested(g)
        if g is not None and len(g.shape) == 2:
            gates = [[[head] for head in heads] for heads in gates]
        steps = delta_heads(
            read.nested(q), read.nested(k), read.nested(v), gates, read.nested(beta), scale, qk_l2norm
        )
        rows = _rows(slots, query_start_loc, profile, num_accepted, has_state)
        return _by_heads(function, v, steps, rows, states, memory, profile)

    return answer


for _name in ("delta_recurrent", "delta_chunk", "gdn_recurrent", "gdn_chunk", "kda_recurrent", "kda_chunk"):
    answers(f"Recurrences.{_name}", rule=delta.delta_step)(_of_used_slots(_delta(_name)))


def _linear(function: str) -> Callable[..., Answer]:
    def answer(
        memory: Known,
        profile: Profile,
        q: View,
        k: View,
        v: View,
        g: View | None,
        scale: float,
        states: View,
        slots: Tensor,
        query_start_loc: Tensor,
        num_accepted: Tensor | None = None,
        has_state: Tensor | None = None,
    ) -> Answer:
        read = FloatMemory(memory)
        steps = linear_heads(read.nested(q), read.nested(k), read.nested(v), read.nested(g), scale)
        rows = _rows(slots, query_start_loc, profile, num_accepted, has_state)
        return _by_heads(function, v, steps, rows, states, memory, profile)

    return answer


for _name in ("linear_recurrent", "linear_chunk"):
    answers(f"Recurrences.{_name}", rule=linear.linear_step)(_of_used_slots(_linear(_name)))


def _ssm(function: str) -> Callable[..., Answer]:
    def answer(
        memory: Known,
        profile: Profile,
        x: View,
        dt: View,
        A: View,
        B: View,
        C: View,
        D: View | None,
        z: View | None,
        dt_bias: View | None,
        dt_softplus: bool,
        states: View,
        slots: Tensor,
        query_start_loc: Tensor,
        num_accepted: Tensor | None = None,
        has_state: Tensor | None = None,
        chunk_size: int = 0,
    ) -> Answer:
        read = FloatMemory(memory)
        times, rates, offsets = read.nested(dt), read.nested(A), read.nested(dt_bias)
        if len(dt.shape) == 2:
            # Of Mamba-2 each head has one.
            channels, entries = states.shape[2:]
            times = [[[head] * channels for head in heads] for heads in times]
            rates = [[[rate] * entries] * channels for rate in rates]
            offsets = [[offset] * channels for offset in offsets] if offsets is not None else None
        inputs, b, c, d, gate = (read.nested(one) for one in (x, B, C, D, z))
        steps = ssm_heads(inputs, times, rates, b, c, d, gate, offsets, dt_softplus)
        if function in profile.chunks_of_batches:
            steps = in_chunks_of_batches(steps, query_start_loc.values(), chunk_size)
        rows = _rows(slots, query_start_loc, profile, num_accepted, has_state)
        return _by_heads(function, x, steps, rows, states, memory, profile)

    return answer


for _name in ("ssm_update", "ssd_prefill"):
    answers(f"Recurrences.{_name}", rule=ssm.ssm_step)(_of_used_slots(_ssm(_name)))


def _conv(function: str) -> Callable[..., Answer]:
    def answer(
        memory: Known,
        profile: Profile,
        x: View,
        weight: View,
        bias: View | None,
        activation: str | None,
        states: View,
        slots: Tensor,
        query_start_loc: Tensor,
        num_accepted: Tensor | None = None,
        has_state: Tensor | None = None,
    ) -> Answer:
        read = FloatMemory(memory)
        rows = _rows(slots, query_start_loc, profile, None, has_state)
        inputs, weights, biases = read.nested(x), read.nested(weight), read.nested(bias)
        pool, width = read.nested(states), weight.shape[1]
        roundoff = _roundoff(function, profile, x.dtype)
        outputs: dict[int, list[Near]] = {}
        new: dict[int, list[Near | None]] = {}
        for row in range(len(rows)):
            accepted = None if num_accepted is None else num_accepted.values()[row]
            if not (tokens := rows.tokens(row)):
                continue
            slot = rows.source(row)
            for channel in range(x.shape[1]):
                held = pool[slot][channel]
                before = [0.0] * len(held) if rows.is_fresh(row) else held
                own = [inputs[token][channel] for token in tokens]
                seen = [*conv.window_before(before, width, accepted), *own]
                given = weights[channel], biases[channel] if biases is not None else 0.0, activation
                for at, token in enumerate(tokens):
                    window = seen[at : at + width]
                    outputs.setdefault(token, []).append(
                        near(
                            conv.convolved(window, *given),
                            roundoff.of(width + 4.0) * conv.convolved_sizes(window, *given),
                            x.dtype,
                        )
                    )
                after = conv.window_after(before, own, width, accepted)
                kept = len(own) + width - 2 if accepted is not None else width - 1
                new.setdefault(slot, []).extend([*map(Near, after[:kept]), *[None] * len(held[kept:])])
        return _output(x, x.shape, outputs), _changed(states, memory, new)

    return answer


for _name in ("conv_update", "conv_prefill"):
    answers(f"Recurrences.{_name}", rule=conv.convolved)(_of_used_slots(_conv(_name)))
