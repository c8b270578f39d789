"""Conditions that entries of `vllm_known.toml` name: what a defect wants of a case beside the place where it shows.

They need no vLLM: the entries are tested where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from properties.harness.subject.deviation import Condition
from properties.subjects.vllm_conditions.align import ALIGN
from properties.subjects.vllm_conditions.builders import BUILDERS
from properties.subjects.vllm_conditions.live import LIVE
from properties.subjects.vllm_conditions.live_connectors import LIVE_CONNECTORS
from properties.subjects.vllm_conditions.stateless import STATELESS

CONDITIONS: Mapping[str, Condition] = {**ALIGN, **BUILDERS, **LIVE, **LIVE_CONNECTORS, **STATELESS}
