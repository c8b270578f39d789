"""Conditions that entries of `vllm_known.toml` name: what a defect wants of a case beside the place where it shows.

They need no vLLM: the entries are tested where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from statecheck.subject.known import Condition
from subjects.vllm_conditions.engines import ENGINES
from subjects.vllm_conditions.functions import FUNCTIONS

CONDITIONS: Mapping[str, Condition] = {**FUNCTIONS, **ENGINES}
