"""What stands in for compiled extensions of a release, with a stand-in for vLLM and a GPU that is only pretended."""

from __future__ import annotations

import pytest

from tests.subjects.test_vllm_builders import told

WITHOUT_EXTENSIONS = """
pretend()
everything = sys.meta_path[0]
found = everything.find_spec
everything.find_spec = lambda name, *_: None if name.rpartition(".")[2].startswith("_") else found(name)
import torch
torch.cuda.is_available = lambda: {gpu}
import subjects.vllm.release
"""


def test_beside_a_gpu_missing_extensions_are_imported_and_can_do_nothing() -> None:
    script = """
import vllm._C, vllm._moe_C, vllm.vllm_flash_attn._vllm_fa2_C, vllm._C_stable_libtorch
print(torch.ops._C.cutlass_scaled_mm_supports_fp8(90), torch.ops._C.cutlass_group_gemm_supported(90))
"""
    assert told("0.28.0", WITHOUT_EXTENSIONS.format(gpu=True) + script) == "False False"


@pytest.mark.parametrize(
    ("gpu", "name"),
    [(True, "vllm._version_of_tomorrow"), (False, "vllm._C")],
    ids=["not an extension", "without a GPU"],
)
def test_nothing_stands_in_for_what_a_release_knows_to_do_without(gpu: bool, name: str) -> None:
    script = f"""
try:
    import {name}
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert told("0.28.0", WITHOUT_EXTENSIONS.format(gpu=gpu) + script) == name
