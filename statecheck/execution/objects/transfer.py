"""Small tensors of a device on the host, in one transfer: each one waits for all that is to be done there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

_LARGEST = 64 << 10
"""Bytes. What is larger is read by itself: there, the bytes cost more than the wait."""


def on_host(found: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tensors among `found` that were read, each with a tensor of the host that has its elements, flat.

    Left out: what lies on the host, subclasses of `Tensor`, and what cannot be read as one run of bytes.
    """
    far = {id(one): one for one in found if type(one) is torch.Tensor and one.is_cuda and has_few_bytes(one)}
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for one in far.values():
        by_device.setdefault(one.device, []).append(one)
    return [pair for tensors in by_device.values() if len(tensors) > 1 for pair in read_together(tensors)]


def read_together(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each of these tensors of one device, all with few bytes, with its elements on the host, flat."""
    # The larger elements first, so that those of each tensor lie where its dtype may be viewed.
    ordered = sorted(tensors, key=lambda one: -one.element_size())
    # One element is contiguous at any stride, and its bytes may be viewed at a stride of one only.
    flat = [one.detach().as_strided((one.numel(),), (1,)) for one in ordered]
    together = torch.cat([one.view(torch.uint8) for one in flat]).cpu()
    sizes = [one.numel() * one.element_size() for one in ordered]
    return [(one, piece.view(one.dtype)) for one, piece in zip(ordered, together.split(sizes), strict=True)]


def has_few_bytes(found: torch.Tensor) -> bool:
    """Whether its elements are one run of bytes that is there, and is short."""
    if found.layout is not torch.strided or found.is_quantized or not found.is_contiguous():
        return False
    # The bytes of these are not yet what the elements are, or not one number each.
    if found.is_neg() or found.is_complex():
        return False
    # Views of a storage that was made smaller since have elements that are no longer there.
    nbytes = found.numel() * found.element_size()
    end = found.storage_offset() * found.element_size() + nbytes
    return 0 < nbytes <= _LARGEST and end <= found.untyped_storage().nbytes()
