"""A tiny hybrid language model with real recurrences, to hold the state management of a serving engine against.

It works on state bytes, one token at a time: from the state of a wrong prefix it gives other text, as from a real model.
One token is the same operations on the same shapes however tokens are grouped, so that results can be compared bit by bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize, silu, softplus

from properties.engine.models import LayerState
from properties.strategies.align.setup import Group, Kept, Setup

WINDOW = 3
"""Past inputs that a short convolution of K = 4 taps needs, K-1."""
HEADS = 2
HIDDEN = 16
ITEMSIZE = 4
_EPSILON = 1e-5
_NETWORKS_KEPT, _STEPS_KEPT = 32, 8192


@dataclass(frozen=True)
class Layer(ABC):
    """A short convolution with SiLU, then a recurrence whose gates depend on the token.

    A token's hidden state is projected onto conv inputs (`channels`), an output gate (HEADS × `head_dim`) and `controls` numbers
    per head, in this order. All weights are float32: `projection` [their sum, HIDDEN], `taps` [K, channels] with the newest
    input's last, `bias` [channels], `decay` and `shift` [HEADS] of the recurrence's gate, `output` [HIDDEN, HEADS × head_dim].
    What the layer adds to the hidden state is about `gain` in size, where the hidden state begins at 1.
    """

    projection: Tensor
    taps: Tensor
    bias: Tensor
    decay: Tensor
    shift: Tensor
    output: Tensor

    channels: ClassVar[int]
    head_dim: ClassVar[int]
    controls: ClassVar[int]
    gain: ClassVar[float]
    temporal_shape: ClassVar[tuple[int, int, int]]

    @classmethod
    def draw(cls, generator: Generator) -> Self:
        """A layer with weights from `generator`; a head that remembers long and one that soon forgets."""
        inner = HEADS * cls.head_dim
        rows = cls.channels + inner + HEADS * cls.controls
        return cls(
            projection=_normal(generator, rows, HIDDEN) * HIDDEN**-0.5,
            taps=_normal(generator, WINDOW + 1, cls.channels) * 0.5,
            bias=_normal(generator, cls.channels) * 0.1,
            decay=torch.tensor([0.1, 0.6]),
            shift=_normal(generator, HEADS) * 0.3,
            output=_normal(generator, HIDDEN, inner) * (cls.gain * inner**-0.5),
        )

    @classmethod
    def initial(cls) -> LayerState:
        """The state before the first token."""
        row, (heads, rows, columns) = bytes(cls.channels * ITEMSIZE), cls.temporal_shape
        return LayerState(((row,) * WINDOW,), (bytes(heads * rows * columns * ITEMSIZE),))

    @classmethod
    def kept(cls, num_spec: int, layout: str) -> tuple[Kept, Kept]:
        """The states of the layer in a block of an engine's cache."""
        shape = (WINDOW + num_spec, cls.channels)
        conv = Kept("conv", shape if layout == "SD" else shape[::-1], "float32")
        return conv, Kept("temporal", cls.temporal_shape, "float32")

    def step(self, state: LayerState, hidden: Tensor) -> tuple[LayerState, Tensor]:
        """The state after one more token with `hidden` [HIDDEN], and what the layer adds to it."""
        sizes = [self.channels, HEADS * self.head_dim, HEADS * self.controls]
        newest, gate, controls = torch.split(self.projection @ _scaled(hidden), sizes)
        (window,), (temporal,) = state.windows, state.temporal
        mixed = silu((_floats(*window, _raw(newest)).view(WINDOW + 1, -1) * self.taps).sum(0) + self.bias)
        before = _floats(temporal).view(self.temporal_shape)
        after, read = self.recur(before, mixed, controls.view(self.controls, HEADS))
        left = LayerState(((*window[1:], _raw(newest)),), (_raw(after),))
        return left, self.output @ _scaled(read * silu(gate).view(HEADS, -1)).flatten()

    @abstractmethod
    def recur(self, before: Tensor, mixed: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
        """The temporal state after a token, and what is read from it [HEADS, head_dim].

        `mixed` [channels] is what the convolution gives, `controls` is [number of controls, HEADS].
        """


class GatedDeltaNet(Layer):
    """The gated delta rule, S_t = a S_{t-1} (I - b k k^T) + b v k^T and o_t = S_t q, on S [HEADS, V, K].

    The convolution gives q and k [HEADS, K], both of length 1, and v [HEADS, V]; the controls are those of the decay a and of b.
    """

    key_dim: ClassVar[int] = 4
    head_dim: ClassVar[int] = 3
    channels: ClassVar[int] = HEADS * (2 * key_dim + head_dim)
    controls: ClassVar[int] = 2
    gain: ClassVar[float] = 1.5
    temporal_shape: ClassVar[tuple[int, int, int]] = (HEADS, head_dim, key_dim)

    def recur(self, before: Tensor, mixed: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
        """One update by the delta rule."""
        keys = HEADS * self.key_dim
        q, k = normalize(mixed[: 2 * keys].view(2, HEADS, 1, self.key_dim), dim=-1)
        v = mixed[2 * keys :].view(HEADS, self.head_dim)
        decayed = before * torch.exp(-self.decay * softplus(controls[0] + self.shift)).view(HEADS, 1, 1)
        missing = (v - (decayed * k).sum(-1)) * torch.sigmoid(controls[1]).view(HEADS, 1)
        after = decayed + missing.unsqueeze(-1) * k
        return after, (after * q).sum(-1)


class Mamba2(Layer):
    """The selective recurrence H_t = exp(-A d) H_{t-1} + d x B^T and y_t = H_t C, on H [HEADS, P, N].

    The convolution gives x [HEADS, P], B and C [N], which the heads share; the control is that of the step d.
    There is no D x_t: what a token says of itself would drown what the state says of the tokens before.
    """

    head_dim: ClassVar[int] = 4
    state_dim: ClassVar[int] = 4
    channels: ClassVar[int] = HEADS * head_dim + 2 * state_dim
    controls: ClassVar[int] = 1
    gain: ClassVar[float] = 4.0
    temporal_shape: ClassVar[tuple[int, int, int]] = (HEADS, head_dim, state_dim)

    def recur(self, before: Tensor, mixed: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
        """One update by the selective recurrence."""
        x, b, c = torch.split(mixed, [HEADS * self.head_dim, self.state_dim, self.state_dim])
        x = x.view(HEADS, self.head_dim)
        step = softplus(controls[0] + self.shift)
        decayed = before * torch.exp(-self.decay * step).view(HEADS, 1, 1)
        after = decayed + (step.view(HEADS, 1) * x).unsqueeze(-1) * b
        return after, (after * c).sum(-1)


@dataclass(frozen=True, eq=False)
class Network:
    """The weights of a model: `embedding` and `head` [vocabulary, HIDDEN], and its layers."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    head: Tensor


@lru_cache(_NETWORKS_KEPT)
def network(seed: int, sorts: tuple[type[Layer], ...], vocabulary: int) -> Network:
    """The weights that follow from a seed."""
    generator = Generator().manual_seed(seed)
    embedding = _normal(generator, vocabulary, HIDDEN)
    layers = tuple(sort.draw(generator) for sort in sorts)
    # A token lowers its own logit: greedy texts would soon repeat one token.
    return Network(embedding, layers, _normal(generator, vocabulary, HIDDEN) - 2 * embedding)


@lru_cache(_STEPS_KEPT)
def advanced(
    model: Network, states: tuple[LayerState, ...], token: int
) -> tuple[tuple[LayerState, ...], int]:
    """The states of all layers after one more token, and the token that comes next.

    The same bytes give the same bytes, so that they are kept: the run without an engine asks first what an engine then asks.
    """
    hidden, after = model.embedding[token], []
    for layer, state in zip(model.layers, states, strict=True):
        left, added = layer.step(state, hidden)
        hidden = hidden + added
        after.append(left)
    return tuple(after), int(torch.argmax(model.head @ _scaled(hidden)))


class Recurrent:
    """A language model of GDN layers and then Mamba-2 layers, with weights from `seed` and a greedy head.

    It stands for a model that an engine runs with `num_spec` drafts and blocks of `block_size` tokens, with conv states in `layout`:
    `setup` says what that engine's cache has, a group for the layers of each sort that there is. Its layers are numbered as there.
    """

    def __init__(
        self,
        seed: int,
        *,
        num_spec: int,
        block_size: int,
        layout: str = "SD",
        gdn_layers: int = 1,
        mamba2_layers: int = 1,
        vocabulary: int = 24,
    ) -> None:
        sorts = ((GatedDeltaNet, gdn_layers), (Mamba2, mamba2_layers))
        groups = tuple(Group(sort.kept(num_spec, layout), layers=layers) for sort, layers in sorts if layers)
        self.setup = Setup(groups, ("conv", "temporal"), block_size, num_spec, layout)
        self.vocabulary = vocabulary
        self.network = network(seed, (GatedDeltaNet,) * gdn_layers + (Mamba2,) * mamba2_layers, vocabulary)

    def initial(self) -> tuple[LayerState, ...]:
        """The states before the first token, by layer."""
        return tuple(layer.initial() for layer in self.network.layers)

    def advance(self, states: tuple[LayerState, ...], token: int) -> tuple[tuple[LayerState, ...], int]:
        """The states of all layers after one more token, and the next token of the model."""
        return advanced(self.network, states, token)

    def continued(self, prompt: Sequence[int]) -> Iterator[int]:
        """The tokens that follow `prompt`, without an end, each computed when it is asked for."""
        states, next_token = self.initial(), 0
        for token in prompt:
            states, next_token = self.advance(states, token)
        while True:
            yield next_token
            states, next_token = self.advance(states, next_token)


def _normal(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator)


def _scaled(vectors: Tensor) -> Tensor:
    """`vectors` [..., size], each of root mean square 1."""
    return vectors * torch.rsqrt((vectors * vectors).mean(-1, keepdim=True) + _EPSILON)


def _floats(*rows: bytes) -> Tensor:
    # The clone begins where the allocator aligns; sums of what begins elsewhere may round otherwise.
    return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.float32).clone()


def _raw(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()
