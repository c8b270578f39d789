"""vLLM's adapter, with a stand-in for vLLM in which every name leads to an empty class."""

from __future__ import annotations

import pytest

from tests.helpers.processes import run_python

STAND_IN = '''
import importlib.machinery, importlib.metadata, sys, types
from types import SimpleNamespace

class Anything:
    """Finds a module for each name of vLLM, with a class for each name in it, or nothing where the test says so."""

    MISSING = ()

    def find_spec(self, name, *_):
        if name.split(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: self.found(spec.name, name)
        return module

    def found(self, module, name):
        if name.startswith("__") or name in self.MISSING:
            raise AttributeError(name)
        made = type(name, (), {"__module__": module})
        vars(sys.modules[module])[name] = made
        return made

    def exec_module(self, module):
        pass

def pretend(release):
    importlib.metadata.version = lambda name: release
    sys.meta_path.insert(0, Anything())
    import vllm.v1.attention.backends.utils as utils
    utils.NULL_BLOCK_ID = 0
'''


def printed(release: str, script: str) -> str:
    """The output of `script` with a stand-in of that release."""
    source = f"{STAND_IN}\n{script}".replace("pretend()", f"pretend({release!r})")
    done = run_python("-c", f"import warnings\nwarnings.simplefilter('ignore')\n{source}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_table_rows_of_padding_hold_null_blocks_and_the_runner_s_table_stays() -> None:
    script = """
pretend()
import torch
from subjects.vllm.builders import padded_with_null
table = torch.tensor([[7, 8], [9, 9], [9, 9]])
print(padded_with_null(table, torch.tensor([0, 3, 3, 3])).tolist(), table.tolist())
"""
    assert printed("0.33.0", script) == "[[7, 8], [0, 0], [0, 0]] [[7, 8], [9, 9], [9, 9]]"


def test_gdn_is_told_triton_and_the_layer_s_module_is_not_loaded_for_that() -> None:
    script = """
pretend()
import vllm.v1.attention.backends.gdn_attn as gdn
class Released:
    def __init__(self, spec, names, config, device):
        from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import _resolve_gdn_prefill_backend
        self.backend = _resolve_gdn_prefill_backend(config)[1]
gdn.GDNAttentionMetadataBuilder = Released
from subjects.vllm.builders import GDNAttentionMetadataBuilder
config = SimpleNamespace(cache_config=SimpleNamespace(mamba_cache_mode="none"), speculative_config=None)
built = GDNAttentionMetadataBuilder(None, [], config, "cpu")
print(built.backend, any("qwen" in name for name in sys.modules))
"""
    assert printed("0.33.0", script) == "triton False"


@pytest.mark.parametrize(
    ("layout", "convs"), [("False", "((4, 6), (4, 2), (4, 2)"), ("True", "((6, 4), (2, 4), (2, 4)")]
)
def test_the_one_conv_state_of_kda_is_three_again(layout: str, convs: str) -> None:
    conv = "(4, 10)" if layout == "False" else "(10, 4)"
    script = f"""
pretend()
import vllm.model_executor.layers.mamba.mamba_utils as shapes
class Released:
    @classmethod
    def kda_state_shape(cls, *sizes):
        return {conv}, (3, 4, 4)
shapes.MambaStateShapeCalculator = Released
shapes.is_conv_state_dim_first = lambda: {layout}
from subjects.vllm.functions import MambaStateShapeCalculator
print(MambaStateShapeCalculator.kda_state_shape(2, 3, 4))
"""
    assert printed("0.33.0", script) == f"{convs}, (3, 4, 4))"


@pytest.mark.parametrize(("release", "outcome"), [("0.31.0", "asked"), ("0.32.0", "NotOffered")])
def test_mode_all_is_not_offered_since_it_is_gone(release: str, outcome: str) -> None:
    script = """
pretend()
import vllm.v1.attention.backends.utils as utils
utils.mamba_get_block_table_tensor = lambda *asked: "asked"
from subjects.vllm.functions import mamba_get_block_table_tensor
try:
    print(mamba_get_block_table_tensor(None, None, None, "all"))
except Exception as error:
    print(type(error).__name__)
"""
    assert printed(release, script) == outcome


def test_a_builder_that_a_release_lacks_is_not_there() -> None:
    script = """
pretend()
Anything.MISSING = ("GDNAttentionMetadataBuilder", "MambaStateShapeCalculator")
import subjects.vllm as subject
print(subject.SUBJECT.has("GDNAttentionMetadataBuilder.build"), hasattr(subject, "MambaStateShapeCalculator"))
"""
    assert printed("0.33.0", script) == "False False"


def test_a_release_before_the_oldest_is_refused_and_the_supported_releases_are_named() -> None:
    script = """
pretend()
from statecheck.subject import load
try:
    load("vllm")
except ValueError as error:
    print(error)
"""
    rule = "0.29.0 or later (tried: 0.29.0, 0.30.0, 0.31.0, 0.32.0, 0.33.0)"
    assert f"vllm = '0.28.0', but should be {rule}" in printed("0.28.0", script)


WITHOUT_EXTENSIONS = """
pretend()
everything = sys.meta_path[0]
found = everything.find_spec
everything.find_spec = lambda name, *_: None if name.rpartition(".")[2].startswith("_") else found(name)
import torch
torch.cuda.is_available = lambda: {gpu}
import subjects.vllm.release
try:
    import {names}
    print(torch.ops._C.cutlass_scaled_mm_supports_fp8(90), torch.ops._C.cutlass_group_gemm_supported(90))
except ModuleNotFoundError as error:
    print(error.name)
"""


@pytest.mark.parametrize(
    ("gpu", "names", "outcome"),
    [
        (
            True,
            "vllm._C, vllm._moe_C, vllm.vllm_flash_attn._vllm_fa2_C, vllm._C_stable_libtorch",
            "False False",
        ),
        (True, "vllm._version_of_tomorrow", "vllm._version_of_tomorrow"),
        (False, "vllm._C", "vllm._C"),
    ],
    ids=["extensions", "not an extension", "without a GPU"],
)
def test_missing_extensions_can_be_imported_beside_a_gpu(gpu: bool, names: str, outcome: str) -> None:
    assert printed("0.29.0", WITHOUT_EXTENSIONS.format(gpu=gpu, names=names)) == outcome


@pytest.mark.parametrize("own", [True, False])
def test_a_method_that_a_builder_inherits_from_a_class_that_refuses_is_not_offered(own: bool) -> None:
    script = f"""
pretend()
import vllm.v1.attention.backends.gdn_attn as gdn

class Backend:
    def update_block_table(self, metadata, blk_table, slot_mapping):
        raise NotImplementedError

class Released(Backend):
    if {own}:
        def update_block_table(self, metadata, blk_table, slot_mapping):
            return metadata

gdn.GDNAttentionMetadataBuilder = Released
from subjects.vllm.builders import GDNAttentionMetadataBuilder
print(hasattr(GDNAttentionMetadataBuilder, "update_block_table"))
"""
    assert printed("0.30.0", script) == str(own)
