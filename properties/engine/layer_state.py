"""What a layer keeps of a request, as bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerState:
    """What a forward reads or leaves behind for one request in one layer, as the bytes that a serving engine stores.

    It is the state after some prefix: all zero bytes before the first token.
    `windows` has, for each conv state of the layer, the K-1 newest conv inputs, oldest first, a row of bytes (channels × item size)
    each. `temporal` has, for each temporal state of the layer (none or one), its bytes in row-major order.
    """

    windows: tuple[tuple[bytes, ...], ...]
    temporal: tuple[bytes, ...]
