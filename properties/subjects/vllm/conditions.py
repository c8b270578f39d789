"""Conditions that entries of `vllm_known.toml` name: whether a failing case is one of a known defect."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from properties.harness.case import Case
from properties.subjects.vllm.conditions_align import ALIGN
from properties.subjects.vllm.conditions_builders import BUILDERS

CONDITIONS: Mapping[str, Callable[[Case], bool]] = {**ALIGN, **BUILDERS}
