"""From objects to plain data: what a call returned, and what observed memory holds after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from properties.harness.blocks import Block, Named, Scope, SubjectError, Window, raw_bytes
from properties.harness.build import Bound
from properties.harness.values import CANARY, Place, Record, SameAs, Tensor, Value, record

_ADDRESS_FIELDS = {("MambaCopySpec", "start_addr")}
MISSING = record("Missing")


class Describer:
    """Describes objects as they are found from a run on `device`; `imaged` gives what to read instead of a tensor."""

    def __init__(
        self, device: str, imaged: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    ) -> None:
        self.device = device
        self._imaged = imaged

    def result(self, result: Any, path: str, scope: Scope, *, by_content: bool = False) -> Value:
        """`result` as a value: its parts, and tensors by what they hold or by which of the arguments they are."""
        if isinstance(result, torch.Tensor):
            return self._tensor(result, path, scope, by_content)
        describe = partial(self.result, scope=scope, by_content=by_content)
        if is_dataclass(result) and not isinstance(result, type):
            return self._fields(result, path, scope, describe)
        if isinstance(result, dict):
            return {key: describe(item, f"{path}[{key!r}]") for key, item in result.items()}
        if isinstance(result, (list, tuple)):
            items = [describe(item, f"{path}[{i}]") for i, item in enumerate(result)]
            return items if isinstance(result, list) else tuple(items)
        if isinstance(result, np.ndarray):
            return self._array(result)
        if result is None or isinstance(result, (bool, int, float, str)):
            return result
        return Record(type(result).__name__, ())

    def _tensor(self, result: torch.Tensor, path: str, scope: Scope, by_content: bool) -> Value:
        if not by_content:
            if id(result) in scope.paths:
                return SameAs(scope.paths[id(result)])
            scope.add(path, Block(result, result, guarded=False))
        name = str(result.dtype).removeprefix("torch.")
        elements = self._imaged(result).reshape(-1).tolist()
        flat = tuple(map(int, elements)) if result.dtype is torch.bool else tuple(elements)
        return Tensor(name, tuple(result.shape), flat, on=self._place(result))

    def _place(self, tensor: torch.Tensor) -> Place:
        return "host" if self.device != "cpu" and tensor.device.type == "cpu" else "device"

    def _array(self, array: np.ndarray) -> Tensor:
        on: Place = "host" if self.device != "cpu" else "device"
        flat = tuple(map(int, array.reshape(-1).tolist()))
        return Tensor(str(array.dtype), array.shape, flat, on=on)

    @staticmethod
    def _fields(result: Any, path: str, scope: Scope, describe: Callable[[Any, str], Value]) -> Record:
        kind = type(result).__name__

        def field_of(name: str) -> Value:
            item = getattr(result, name)
            if (kind, name) in _ADDRESS_FIELDS and isinstance(item, int):
                return scope.address(item)
            return describe(item, f"{path}.{name}")

        return Record(kind, tuple((one.name, field_of(one.name)) for one in fields(result)))

    def observed(self, names: dict[str, Bound], name: str) -> Value:
        """What `name`, or the dotted path below a name, holds; the record `Missing` where there is nothing."""
        root, _, path = name.partition(".")
        bound = names.get(root)
        if isinstance(bound, Block) and not path:
            return self._block(bound)
        if isinstance(bound, Window) and not path:
            return self._contents(bound.view)
        if bound is None or isinstance(bound, SubjectError):
            return MISSING
        found = bound.value if isinstance(bound, Named) else bound.view
        try:
            for part in filter(None, path.split(".")):
                found = getattr(found, part)
        except AttributeError:
            return MISSING
        return self._contents(found)

    def _block(self, block: Block) -> Value:
        inside = self._storage(block)
        before, after = block.guards()
        if set(before + after) <= {CANARY}:
            return inside
        return record("Damaged", before=before, inside=inside, after=after)

    def _storage(self, block: Block) -> Tensor:
        assert block.before is not None, "memory without contents is observed through views"
        whole = self._contents(block.inside.view(block.view.dtype))
        assert isinstance(whole, Tensor)
        return whole

    def _contents(self, found: Any) -> Value:
        """As `result`, by content; unsigned bytes, and the elements of float types, as bytes."""
        if isinstance(found, torch.Tensor) and (found.dtype is torch.uint8 or found.is_floating_point()):
            raw = raw_bytes(self._imaged(found))
            shape = tuple(found.shape) if found.dtype is torch.uint8 else (len(raw),)
            return Tensor("uint8", shape, raw, on=self._place(found))
        return self.result(found, "", Scope(), by_content=True)
