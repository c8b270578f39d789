"""Stand-ins for packages that SGLang imports: those for GPUs, for images and for servers, which no scenario calls, and operators of `sgl_kernel` for CPUs.

A stand-in that did nothing when it is called would show as a defect of the release, so that every call of it raises. Operators that drafts need are here.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tomllib
import types
import warnings
from pathlib import Path
from typing import Any

import torch

_PACKAGES = frozenset(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["packages"]
)


class _AbsentType(type):
    """The class of absent names: their attributes are absent names, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(f"{cls.__module__}.{cls.__qualname__}", name)

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__

    def __getitem__(cls, _: Any) -> Any:
        return cls


def _absent(module: str, name: str) -> Any:
    """A name of a package that is absent: it can be a base class, an annotation or a decorator, and cannot be called."""

    def refuse(cls: Any, *given: Any, **named: Any) -> Any:
        if cls.__module__ != module:
            return object.__new__(cls)
        if len(given) == 1 and not named and isinstance(given[0], (type, types.FunctionType)):
            return given[0]
        raise RuntimeError(f"{module}.{name} was called, but should not be needed without a GPU [stand-in]")

    def any_schema(cls: Any, *_: Any) -> Any:  # noqa: ARG001 - pydantic's protocol
        return importlib.import_module("pydantic_core.core_schema").any_schema()

    members = {
        "__module__": module,
        "__new__": refuse,
        "__get_pydantic_core_schema__": classmethod(any_schema),
    }
    return _AbsentType(name, (), members)


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _absent(self.__name__, name)
        setattr(self, name, made)
        return made


class _StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Python asks it last, so that what is installed is imported."""

    def find_spec(self, name: str, *_: Any) -> Any:
        if name.partition(".")[0] in _PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        made = _AbsentModule(spec.name)
        # A package, whose modules are absent, too.
        made.__path__ = []
        return made

    def exec_module(self, module: Any) -> None:
        """The module stays empty."""


class _Operators:
    """In the place of `torch.ops.sgl_kernel`: operators for CPUs that raise when they are called."""

    def __getattr__(self, name: str) -> Any:
        # The release asks which others there are, to describe them to torch.
        if not name.endswith("_cpu"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"torch.ops.sgl_kernel.{name} was called, but is not installed [stand-in]")

        setattr(self, name, refuse)
        return refuse


class _NoImages:
    """In the place of `transformers.AutoImageProcessor` where that needs torchvision: the release registers models for images there."""

    @staticmethod
    def register(*_: Any, **__: Any) -> None:
        """No scenario has images."""


def stand_in() -> None:
    """Install the stand-ins, once; transformers must have looked for its optional packages before."""
    if any(isinstance(finder, _StandInFinder) for finder in sys.meta_path):
        return
    warnings.filterwarnings("ignore", module=r"sglang\..*")
    optional = importlib.import_module("transformers.utils.import_utils")
    for name in dir(optional):
        if name.startswith("is_") and name.endswith("_available"):
            ask = getattr(optional, name)
            try:
                ask()
            except (TypeError, ImportError):
                # It takes an argument, or raises where the package is missing: it remembers nothing either way.
                continue
    # The first takes what it can import, and calls it at once; the second makes transformers anew.
    for part in ("integrations.hub_kernels", "processing_utils"):
        importlib.import_module(f"transformers.{part}")
    transformers: Any = sys.modules["transformers"]
    if getattr(transformers.AutoImageProcessor, "is_dummy", False):
        transformers.AutoImageProcessor = _NoImages
    sys.meta_path.append(_StandInFinder())
    if importlib.util.find_spec("sgl_kernel").loader.__class__ is _StandInFinder:  # type: ignore[union-attr]
        vars(torch.ops)["sgl_kernel"] = _Operators()


def install_operators() -> None:
    """Have the release import these; before it imports anything itself."""
    top, speculative = (__import__(name, fromlist=["_"]) for name in ("sgl_kernel", "sgl_kernel.speculative"))
    if hasattr(sys.modules["sgl_kernel"], "__file__"):
        return
    of_drafts = (
        assign_extend_cache_locs_cpu,
        assign_req_to_token_pool_cpu,
        fill_accept_out_cache_loc_cpu,
        fill_bonus_tokens_cpu,
        verify_tree_greedy_cpu,
    )
    vars(top).update({operator.__name__: operator for operator in of_drafts})
    vars(speculative)["reconstruct_indices_from_tree_mask"] = reconstruct_indices_from_tree_mask
    if not hasattr(einops := __import__("einops"), "__file__"):
        vars(einops)["rearrange"] = rearrange


def rearrange(tensor: Any, pattern: str, **sizes: int) -> Any:
    """einops' function, for the last two axes of a state, which the kernels of SSD take as one, and for outputs of lightning attention."""
    if pattern == "... p n -> ... (p n)":
        return tensor.flatten(-2)
    if pattern == "... (p n) -> ... p n":
        return tensor.unflatten(-1, (-1, sizes["n"]))
    if pattern == "b h n d -> b n (h d)":
        return tensor.transpose(1, 2).flatten(2)
    raise RuntimeError(f"einops.rearrange was called for {pattern!r}, but is not installed [stand-in]")


def assign_extend_cache_locs_cpu(rows: Any, table: Any, starts: Any, ends: Any, out: Any, _: int) -> None:
    """Slots of each request's tokens from `starts` to `ends`, one request behind the other."""
    found = [table[row, start:end] for row, start, end in zip(rows, starts, ends, strict=True)]
    slots = torch.cat(found)
    out[: len(slots)] = slots.to(out.dtype)


def assign_req_to_token_pool_cpu(rows: Any, table: Any, starts: Any, ends: Any, slots: Any, _: int) -> None:
    """Write slots, one request behind the other, to the requests' places from `starts` to `ends`."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = slots[at : at + end - start].to(table.dtype)
        at += end - start


def fill_accept_out_cache_loc_cpu(accepted: Any, slots: Any, out: Any, *_: Any) -> None:
    """The slots of accepted nodes, without those that are -1."""
    index = accepted.reshape(-1)
    found = slots[index[index >= 0].long()]
    out[: len(found)] = found.to(out.dtype)


def fill_bonus_tokens_cpu(accepted: Any, lengths: Any, last: Any, stride: int) -> None:
    """The last accepted token of each request, of which so many are accepted in its row of `stride` tokens."""
    for row, length in enumerate(lengths.tolist()):
        last[row] = accepted.reshape(-1)[stride * row + length - 1]


def verify_tree_greedy_cpu(
    *,
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    target_predict: Any,
) -> None:
    """From the root of each request's drafts, follow those that the model says itself; the last one's prediction is a token more."""
    for row in range(candidates.shape[0]):
        node, count = 0, 0
        accept_index[row, 0] = retrive_index[row, 0]
        while count + 1 < accept_index.shape[1]:
            said, child = int(target_predict[row, node]), int(retrive_next_token[row, node])
            while child >= 0 and int(candidates[row, child]) != said:
                child = int(retrive_next_sibling[row, child])
            if child < 0:
                break
            predicts[retrive_index[row, node]] = said
            node, count = child, count + 1
            accept_index[row, count] = retrive_index[row, node]
        accept_token_num[row] = count
        predicts[retrive_index[row, node]] = int(target_predict[row, node])


def reconstruct_indices_from_tree_mask(
    mask: Any, lengths: Any, positions: Any, index: Any, children: Any, siblings: Any, rows: int, nodes: int
) -> None:
    """Of each request's tree of drafts, where a node stands, its first child and its next sibling; -1 where there is none."""
    trees = mask[: rows * nodes * nodes].reshape(rows, nodes, nodes).tolist()
    for row, tree in enumerate(trees):
        above = [[at for at in range(node) if tree[node][at]] for node in range(nodes)]
        parents = [max(found, default=-1) for found in above]
        for node in range(nodes):
            positions[row * nodes + node] = len(above[node]) + int(lengths[row])
            index[row, node] = row * nodes + node
            children[row, node] = _first(parents, node, node)
            siblings[row, node] = _first(parents, parents[node], node) if parents[node] >= 0 else -1


def _first(parents: list[int], parent: int, behind: int) -> int:
    """The first node behind that one with this parent."""
    return next((at for at in range(behind + 1, len(parents)) if parents[at] == parent), -1)
