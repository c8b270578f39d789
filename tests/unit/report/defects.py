"""Implementations that are wrong in one way, with steps that show it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from properties.strategies.batch import Batch, BlockTable, RequestRow, Splitting, metadata
from properties.strategies.chunks import spread
from properties.strategies.layout import Copy, PaddedState
from statecheck.case import Case
from statecheck.case.values import Call, Device, DType, Let, Name, Overwrite, Step, call, int32, record
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from subjects import LAYOUT_VARIABLE, load
from tests.helpers.cases import a_property


@dataclass(frozen=True)
class DefectiveModule:
    """An implementation that is wrong in one way, as the source of a module, and steps that show it."""

    name: str
    source: str
    steps: tuple[Step, ...]

    @property
    def module(self) -> str:
        return f"toy_{self.name.replace(' ', '_')}"


VARLEN = "compute_varlen_chunk_metadata"
BATCH = Batch((RequestRow(1, 3), RequestRow(5, 0, prefilling=True)), padded_rows=1)
TABLE = BlockTable(((1, 2), (3, 4)), (5, 1), block_size=4, width=2, extra_stride=1)
COPY = Copy(PaddedState(4, (3, 2), "bfloat16", padding=3), (0, 2, 3), 1, 2, 1)
SPEC = record("MambaSpec", block_size=4, shapes=((2, 3),), dtypes=(DType("float32"),))
CHUNKS = call(VARLEN, query_start_loc=spread((0, 3, 10), "int32"), chunk_size=4)
CONV = Call(
    "compute_causal_conv1d_metadata",
    (("query_start_loc_p_cpu", int32([0, 9, 9]).on_host()),),
    (("device", Device()),),
)
IN_PLACE = (
    Let("starts", int32([0, 3])),
    call(VARLEN, query_start_loc=Name("starts"), chunk_size=4),
    Overwrite("starts", (0, 5)),
    call(VARLEN, query_start_loc=Name("starts"), chunk_size=4),
)
NAMED_BATCH = (
    Let("lens", int32(BATCH.seq_lens)),
    Let("batch", metadata(BATCH, seq_lens=Name("lens"))),
    call("CommonAttentionMetadata.compute_num_computed_tokens", self=Name("batch")),
)
PAGE = call("MambaSpec.page_size_bytes.fget", self=SPEC)
BAD_PAGE = call(
    "MambaSpec.page_size_bytes.fget", self=record("MambaSpec", **dict(SPEC.fields) | {"page_size_padded": 1})
)


def after(function: str, change: str) -> str:
    """Source: the intact function, its result changed by the statement `change`."""
    return f"""
def {function}(*args, **kwargs):
    result = impl.{function}(*args, **kwargs)
    {change}
    return result
"""


def before(function: str, change: str) -> str:
    """Source: the intact function, called after the statement `change`."""
    return f"""
def {function}(*args, **kwargs):
    {change}
    return impl.{function}(*args, **kwargs)
"""


SPLIT, GATHER = "split_decodes_and_prefills", "mamba_get_block_table_tensor"
CONV_COPY = "get_conv_copy_spec"
CHANNELS_FIRST = call("is_conv_state_dim_first", environment={LAYOUT_VARIABLE: "DS"})
DEFECTS = (
    DefectiveModule("element", after(VARLEN, "result[0][-1] += 1"), (CHUNKS,)),
    DefectiveModule("dtype", after(VARLEN, "result = tuple(one.long() for one in result)"), (CHUNKS,)),
    DefectiveModule("shape", after(VARLEN, "result = (result[0][1:], *result[1:])"), (CHUNKS,)),
    DefectiveModule("missing item", after(VARLEN, "result = result[:2]"), (CHUNKS,)),
    DefectiveModule("no result", after(VARLEN, "result = None"), (CHUNKS,)),
    DefectiveModule("matrix element", after(GATHER, "result[1, 0] += 1"), (TABLE.call(),)),
    DefectiveModule("same object", after(GATHER, "result = result.clone()"), (TABLE.call("none"),)),
    DefectiveModule(
        "count", after(SPLIT, "result = (result[0] + 1, *result[1:])"), (Splitting(BATCH).call(),)
    ),
    DefectiveModule("list for tuple", after(SPLIT, "result = list(result)"), (Splitting(BATCH).call(),)),
    DefectiveModule(
        "bool for int", after(SPLIT, "result = (bool(result[0]), *result[1:])"), (Splitting(BATCH).call(),)
    ),
    DefectiveModule(
        "identity in a dict",
        after("compute_causal_conv1d_metadata", "result = (result[0], result[1].clone(), result[2])"),
        (CONV,),
    ),
    DefectiveModule("keys", after("compute_causal_conv1d_metadata", "del result[0][8]['mlist']"), (CONV,)),
    DefectiveModule("address", after(CONV_COPY, "result.start_addr += 1"), (COPY.call(CONV_COPY),)),
    DefectiveModule(
        "elements to copy", after(CONV_COPY, "result.num_elements -= 1"), (COPY.call(CONV_COPY),)
    ),
    DefectiveModule(
        "record of another class",
        after(CONV_COPY, "result = type('Spec', (impl.MambaCopySpec,), {})(**vars(result))"),
        (COPY.call(CONV_COPY),),
    ),
    DefectiveModule(
        "layout not read",
        after("is_conv_state_dim_first", "result = False"),
        (call("is_conv_state_dim_first"), CHANNELS_FIRST),
    ),
    DefectiveModule("no refusal", "def divide(x, y):\n    return x // y\n", (call("divide", x=5, y=2),)),
    DefectiveModule(
        "refusal of another type",
        "def divide(x, y):\n    raise RuntimeError('x')\n",
        (call("divide", x=5, y=2),),
    ),
    DefectiveModule(
        "refusal of another argument",
        "def divide(x, y):\n    raise ValueError('max = 5, y = 2')\n",
        (call("divide", x=5, y=2),),
    ),
    DefectiveModule("exception", before(VARLEN, "raise RuntimeError('lost')"), (CHUNKS,)),
    DefectiveModule(
        "stale result", f"import functools\n{VARLEN} = functools.lru_cache(impl.{VARLEN})\n", IN_PLACE
    ),
    DefectiveModule(
        "stale field",
        """
class CommonAttentionMetadata(impl.CommonAttentionMetadata):
    def compute_num_computed_tokens(self):
        if not hasattr(self, "_kept"):
            self._kept = super().compute_num_computed_tokens()
        return self._kept
""",
        (*NAMED_BATCH, Overwrite("lens", tuple(9 + n for n in BATCH.seq_lens)), NAMED_BATCH[-1]),
    ),
    DefectiveModule(
        "argument written",
        before(VARLEN, "args[0][0] = 1"),
        (call(VARLEN, query_start_loc=int32([0]), chunk_size=4),),
    ),
    DefectiveModule(
        "gap written",
        before(VARLEN, "args[0].as_strided((1,), (1,), args[0].storage_offset() - 1).zero_()"),
        (CHUNKS,),
    ),
    DefectiveModule(
        "field of a named record written",
        """
class CommonAttentionMetadata(impl.CommonAttentionMetadata):
    def compute_num_computed_tokens(self):
        result = super().compute_num_computed_tokens()
        self.seq_lens += 1
        return result
""",
        NAMED_BATCH,
    ),
    DefectiveModule(
        "record refused",
        "class MambaSpec(impl.MambaSpec):\n    def __post_init__(self):\n        raise ValueError('shapes')\n",
        (PAGE,),
    ),
    DefectiveModule(
        "record not refused",
        "class MambaSpec(impl.MambaSpec):\n    def __post_init__(self):\n        pass\n",
        (BAD_PAGE,),
    ),
)


def source(defect: DefectiveModule) -> str:
    return f"import impl\nfrom impl import *\n{defect.source}"


def falsified(subject_name: str, device: str, *steps: Step) -> Case:
    subject = load(subject_name)
    with pytest.raises(Falsified) as caught:
        ExecutionContext(subject, InProcess(subject, device)).begin(a_property()).agrees(*steps)
    return caught.value.case
