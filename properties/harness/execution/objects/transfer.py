"""Small tensors of a device on the host, in one transfer: each one waits for all that is to be done there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_LARGEST = 64 << 10
"""Bytes. What is larger is read by itself: there, the bytes cost more than the wait."""


def on_host(found: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tensors among `found` that were read, each with a tensor of the host that has its elements, flat.

    Left out: what lies on the host, subclasses of `Tensor`, and what cannot be read as one run of bytes.
    """
    far = {id(one): one for one in found if _is_small_and_far(one)}
    if len(far) < 2:
        return []
    # The larger elements first, so that those of each tensor lie where its dtype may be viewed.
    ordered = sorted(far.values(), key=lambda one: -one.element_size())
    together = torch.cat([one.detach().reshape(-1).view(torch.uint8) for one in ordered]).cpu()
    sizes = [one.numel() * one.element_size() for one in ordered]
    pieces = zip(ordered, together.split(sizes), strict=True)
    return [(one, piece.view(one.dtype)) for one, piece in pieces]


def _is_small_and_far(found: Any) -> bool:
    if type(found) is not torch.Tensor or found.device.type != "cuda" or found.layout is not torch.strided:
        return False
    if found.is_quantized or found.is_neg() or found.is_complex() or not found.is_contiguous():
        return False
    # Views of a storage that was made smaller since have elements that are no longer there.
    end = (found.storage_offset() + found.numel()) * found.element_size()
    return 0 < found.numel() * found.element_size() <= _LARGEST and end <= found.untyped_storage().nbytes()
