"""A release's own engine with a port's functions inside: they are called as the documents have it, and what they break is found."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from properties.strategies.releases.live import LiveWorld
from statecheck import rooms
from statecheck.case.case import check_names
from statecheck.subject import load
from statecheck.subject.loading import project_of
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.releases import PYTHON, needs_release

ADAPTER = ROOT / "subjects/vllm"


@cache
def parts() -> Any:
    """The module of the adapter, without what the import of a release needs."""
    spec = importlib.util.spec_from_file_location("inside", ADAPTER / "engine" / "inside.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    absent = {
        "engine.config": SimpleNamespace(BUILDERS={}),
        "engine.settings": SimpleNamespace(LiveSettings=object),
        "release": SimpleNamespace(RELEASE=(), find=None),
    }
    with patch.dict(sys.modules, {f"subjects.vllm.{name}": made for name, made in absent.items()}):
        spec.loader.exec_module(module)
    return module


class Recorder:
    """A port's object that remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.calls.append((name, given, named))


@pytest.mark.parametrize("subject", ["vllm+impl", "vllm+my.port", "vllm"])
def test_an_engine_with_a_module_inside_is_a_name_of_a_subject(subject: str) -> None:
    check_names(replace(a_case(), subject=subject))
    project = project_of(subject)
    assert project is not None
    assert project.subject == "vllm"


@pytest.mark.parametrize("subject", ["vllm+", "+impl", "vllm+impl+impl", "vllm+a b", "vllm+../x"])
def test_other_names_with_a_plus_name_no_engine_with_a_module_inside(subject: str) -> None:
    with pytest.raises(ValueError, match="subject = "):
        check_names(replace(a_case(), subject=subject))


def test_nothing_stands_inside_of_a_subject_that_is_no_engine() -> None:
    with pytest.raises(ValueError, match=r"subject = 'impl\+impl', but should be ENGINE\+impl"):
        load("impl+impl")


def test_a_scenario_says_what_stands_inside() -> None:
    """The case needs no variable of the process to be tried again."""
    world = LiveWorld()
    assert "inside" not in dict(world.settings_with("").fields)
    assert world.settings_with("impl")["inside"] == "impl"


def test_defects_in_replaced_functions_are_declared_in_the_release_alone() -> None:
    """The adapter cannot be imported without a release, so that its names are read."""
    tree = ast.parse((ADAPTER / "__init__.py").read_text(encoding="utf-8"))
    (assigned,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "IN_WHAT_IS_REPLACED"
    )
    assert isinstance(assigned, ast.Call)
    names = ast.literal_eval(assigned.args[0])
    known = tomllib.loads((ADAPTER.parent / "vllm_known.toml").read_text(encoding="utf-8"))["known"]
    assert names <= {row["id"] for row in known if "real-engine" in str(row["properties"])}


def test_a_ports_context_reads_tables_by_slot_where_the_release_hands_over_those() -> None:
    """Every slot is a row then, and those that are not in the batch are skipped, as rows mapped to -1 are."""
    calls: Counter[str] = Counter()
    made = Recorder()
    port = SimpleNamespace(
        MambaSpecDecodeGPUContext=SimpleNamespace(create=lambda *_: made), get_conv_copy_spec="conv"
    )
    context = parts().context_inside(port, lambda name: calls.update([name]))
    bound = context.create(4, None, device="cpu", make_buffer=None, num_state_types=1)
    states, batch = torch.arange(4), torch.tensor([2, -1, 0])
    bound.initialize_from_forward_context(None, None, (), ["by slot"], ["by row"])
    bound.run_fused_precopy(3, states, batch)
    bound.by_slot = False
    bound.run_fused_postprocess_align(2, states, batch)
    (_, precopied, _), (_, postprocessed, _) = made.calls[1:]
    assert precopied[0] == 4
    assert precopied[-1].tolist() == [0, -1, 2, -1]
    assert postprocessed[0] == 2
    assert postprocessed[-1].tolist() == [2, -1]
    assert sum(calls.values()) == 2


@dataclass
class Batch:
    """The part of a batch's metadata that tells which rows run as decodes."""

    query_start_loc_cpu: torch.Tensor
    seq_lens_cpu_upper_bound: torch.Tensor
    is_prefilling: torch.Tensor


def test_the_rest_of_a_prompt_runs_as_a_decode_where_the_release_says_so() -> None:
    """A single token, alone or with as many drafts as fill the row up, behind tokens that have left a state."""
    # A tail, a tail with drafts, one without a state, a chunk, a decode with drafts.
    batch = Batch(
        torch.tensor([0, 1, 4, 7, 10, 13]), torch.tensor([5, 7, 3, 9, 9]), torch.tensor([True] * 4 + [False])
    )
    seen = parts()._with_tails_as_decodes(batch, torch.tensor([-1, 2, 2, -1, 2]))
    assert seen.is_prefilling.tolist() == [False, False, True, True, False]
    assert batch.is_prefilling.tolist() == [True] * 4 + [False]


def test_the_first_runners_functions_are_those_of_the_port() -> None:
    calls: Counter[str] = Counter()
    port: Any = Recorder()
    port.get_conv_copy_spec, port.get_temporal_copy_spec = "conv", "temporal"
    functions = parts().first_runner_inside(port, lambda name: calls.update([name]))
    released = {"gdn": (SimpleNamespace(__name__="get_conv_copy_spec"),)}
    functions["preprocess_mamba"]("scheduled", released, "buffers", align_ctx="context")
    functions["postprocess_mamba_align_gpu"](bufs="buffers", mamba_state_copy_funcs=released)
    functions["stage_postprocess_inputs_to_gpu"]("context", "scheduled")
    assert [function for function, *_ in port.calls] == list(calls)
    assert port.calls[0][1:] == (("scheduled", ("conv",), "buffers"), {})
    assert port.calls[1][1:] == ((), {"bufs": "buffers", "mamba_state_copy_funcs": ("conv",)})


_SCENARIO = """
import json
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from statecheck.subject import load
subject = load("vllm+impl")
for runner, kinds in (("V1", ("mamba2",)), ("V2", ("mamba2", "gdn"))):
    fields = dict(max_model_len=32, num_blocks=24, max_num_seqs=2, num_spec=1, kinds=kinds, runner=runner, inside="impl")
    engine = subject.resolve("LiveEngine")(subject.construct("LiveSettings", fields))
    engine.add_request("r0", (1, 2, 3, 4, 5, 6), 8)
    steps = [engine.step({"r0": 1}) for _ in range(8)]
    assert steps[-1].idle and not any(step.findings for step in steps), steps
    print(json.dumps(engine.worker.inside.calls))
"""


@pytest.mark.slow
@needs_release
def test_every_step_of_a_real_engine_goes_through_the_module_inside() -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", _SCENARIO), cwd=rooms.FOLDER, capture_output=True, text=True, check=True
    )
    first, second = map(json.loads, found.stdout.splitlines()[-2:])
    assert set(first.values()) == set(second.values()) == {6}
    assert set(first) == {
        "Mamba2AttentionMetadataBuilder.build",
        "postprocess_mamba_align_gpu",
        "preprocess_mamba",
        "stage_postprocess_inputs_to_gpu",
    }
    assert set(second) == {
        "GDNAttentionMetadataBuilder.build",
        "Mamba2AttentionMetadataBuilder.build",
        "MambaSpecDecodeGPUContext.run_fused_postprocess_align",
        "MambaSpecDecodeGPUContext.run_fused_precopy",
        "preprocess_mamba_align_fused_kernel",
    }
