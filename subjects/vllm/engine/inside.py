"""Functions of a port in the place of the release's own, inside of its engine: builders, and the copies around a forward.

A port is a module that offers functions by the documents' names, such as `impl`. What it does not offer stays the release's.
"""

import collections
import contextlib
import functools
import importlib
from collections.abc import Iterator
from typing import Any

from statecheck.subject.not_offered import NotOffered
from subjects.vllm.engine.config import BUILDERS
from subjects.vllm.engine.inside_parts import (
    KernelInside,
    builder_inside,
    context_inside,
    first_runner_inside,
)
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.release import RELEASE, find

__all__ = ["PORTED", "Inside"]

_COPIES, _SECOND = "vllm.v1.worker.mamba_utils", "vllm.v1.worker.gpu.model_states.mamba_hybrid"
_CONTEXT, _ADVANCE = "MambaSpecDecodeGPUContext", "preprocess_mamba_align_fused_kernel"
_OF_FIRST_RUNNER = (
    "MambaBuffers",
    "preprocess_mamba",
    "postprocess_mamba_align_gpu",
    "stage_postprocess_inputs_to_gpu",
)
"""Handed one another's buffers, so that they are replaced together."""
_BUILDERS = {
    "mamba1": "Mamba1AttentionMetadataBuilder",
    "mamba2": "Mamba2AttentionMetadataBuilder",
    "gdn": "GDNAttentionMetadataBuilder",
}
_COUNTS_ALWAYS = (0, 32)
"""Since then the first runner hands over accepted counts in every step with speculation."""
PORTED = (*_BUILDERS.values(), _ADVANCE, _CONTEXT, _OF_FIRST_RUNNER[0])
"""What a port may offer, with what belongs to it."""


class Inside:
    """What of a port stands in an engine with these settings, and how often the engine has called it.

    Args:
        settings: `inside` names the port, "" for none.

    Raises:
        NotOffered: this engine would call nothing of the port, or wants of it what no document has.
    """

    def __init__(self, settings: LiveSettings) -> None:
        self.settings = settings
        self.calls: collections.Counter[str] = collections.Counter()
        self.port = importlib.import_module(settings.inside) if settings.inside else None
        self.builders = {kind for kind in settings.kinds if self._offers(_BUILDERS.get(kind, ""))}
        self.copies = list(self._copies()) if settings.prefix_caching else []
        if not settings.inside:
            return
        if not (self.builders or self.copies):
            raise NotOffered(f"an engine that calls functions of {settings.inside}")
        drafts = settings.runner == "V1" and settings.num_spec > 0
        if drafts and "mamba2" in self.builders and RELEASE < _COUNTS_ALWAYS:
            raise NotOffered("accepted counts in a step without drafts, which the documents' builder wants")
        if self.builders and settings.checkpoints:
            raise NotOffered(
                "states that a prefill saves on its way, which the documents' builders do not know"
            )

    def backend(self, kind: str) -> Any:
        """The release's backend of a recurrent kind, with the builder of the port if it has one."""
        released = find(BUILDERS[kind])
        if kind not in self.builders:
            return released
        builder = self._builder(kind, released.get_builder_cls())
        return type(released.__name__, (released,), {"get_builder_cls": staticmethod(lambda: builder)})

    @functools.cache  # noqa: B019 - as long as its engine
    def _builder(self, kind: str, released: Any) -> Any:
        """One class for all groups of the kind: groups of one class share metadata."""
        return builder_inside(released, getattr(self.port, _BUILDERS[kind]), self._count)

    @contextlib.contextmanager
    def functions(self) -> Iterator[None]:
        """Within, the release's modules have the port's functions. Another engine of the process has its own."""
        released = [(module, name, getattr(module, name)) for module, name, _ in self.copies]
        try:
            for module, name, made in self.copies:
                setattr(module, name, made)
            yield
        finally:
            for module, name, own in released:
                setattr(module, name, own)

    def _copies(self) -> Iterator[tuple[Any, str, Any]]:
        """Module, name, and what stands there instead."""
        copies = importlib.import_module(_COPIES)
        if self.settings.runner == "V1":
            if all(map(self._offers, _OF_FIRST_RUNNER)):
                made = first_runner_inside(self.port, self._count)
                yield from ((copies, name, made[name]) for name in _OF_FIRST_RUNNER)
            return
        second = importlib.import_module(_SECOND)
        if self._offers(_ADVANCE):
            kernel = KernelInside(getattr(self.port, _ADVANCE), _ADVANCE, self._count)
            yield second, _ADVANCE, kernel
        if self._offers(_CONTEXT):
            yield second, _CONTEXT, context_inside(self.port, self._count)

    def _offers(self, name: str) -> bool:
        return hasattr(self.port, name)

    def _count(self, name: str) -> None:
        self.calls[name] += 1
