"""Scripts of cases about what memory holds: views, tensors without memory, buffers of the subject."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Call,
    Expected,
    Fake,
    Function,
    Let,
    Name,
    NumPy,
    Overwrite,
    Place,
    Returned,
    Rows,
    Step,
    Tensor,
    View,
    call,
    int32,
    record,
)
from statecheck.execution.port import InProcess
from statecheck.report.repro.script import repro_script
from subjects import load
from tests.breakages.broken import (
    BreakageVerdict,
    a_case,
    module,
    run_scripts,
)
from tests.report.defects import (
    is_right,
    unsaid,
)

MEMORY = """
import torch

class CpuGpuBuffer:
    def __init__(self, *size, dtype, device, pin_memory):
        self.cpu, self.gpu = torch.zeros(*size, dtype=dtype), torch.ones(*size, dtype=dtype, device=device)
        self.np = self.cpu.numpy()

def get_conv_copy_spec():
    return "conv"

class Context:
    @staticmethod
    def create(make_buffer, where):
        context = Context()
        context.out = make_buffer(3, dtype=torch.int64)
        context.where = [where.data_ptr(), where[1].data_ptr(), where.device.type, where.stride(0)]
        return context

    def move(self, layers, rows, counts, table, spec, outside):
        pool = layers["a"].kv_cache[0]
        pool[0, 1], counts[0] = SOURCE, int(table[0])
        rows(1).add_(1)
        if outside:
            pool.as_strided((1,), (1,), pool.storage_offset() - 4).fill_(7)
        self.out.np[1] = -9
        return spec()
"""
MEMORY_LETS = (
    Let("pool0", Tensor("uint8", (24,), bytes(range(24)))),
    Let("table", int32([[1, 2], [3, 4]])),
    Let("counts", int32([5, 6]).on_host()),
    Let("huge", Tensor("uint8", (2**33,), None)),
    Let("far", View("huge", "int32", (2,), offset=2**30)),
    Overwrite("far", (1, 2)),
    Let("state", View("pool0", "bfloat16", (2, 2), strides=(6, 1))),
    Overwrite("state", b"\1\2\3\4\5\6\7\x08"),
    Let("layers", {"a": record("Layer", kv_cache=[View("pool0", "int16", (2, 2), strides=(6, 1))])}),
)
OBSERVED = ("pool0", "state", "far", "table", "counts", "ctx.out.np", "ctx.out.gpu")


def move(outside: int = 0) -> Call:
    return call(
        "Context.move",
        self=Name("ctx"),
        layers=Name("layers"),
        rows=Rows(Name("table")),
        counts=NumPy(Name("counts")),
        table=Attribute(Name("ctx"), "out.gpu"),
        spec=Function("get_conv_copy_spec"),
        outside=outside,
        observes=OBSERVED,
    )


CREATE = call(
    "Context.create",
    make_buffer=BufferMaker(),
    where=Fake("float64", (2, 3), (2**58, 1), 2**64 - 16),
    bind="ctx",
)
MOVED = b"\1\2\x34\x12\4\5\6\7\x08\x09\x0a\x0b\5\6\7\x08" + bytes(range(16, 24))


def memory_case(subject: str, device: str, *steps: Step, expected: tuple[Expected, ...]) -> Case:
    """A case of a subject that no rule is about: the expected outcomes are given."""
    port = InProcess(load(subject), device)
    port.begin()
    outcomes = [port.execute(step) for step in steps]
    actual = tuple(outcome for outcome in outcomes if outcome is not None)
    return a_case(subject=subject, device=device, steps=steps, expected=expected, actual=actual)


def moved(device: str) -> Returned:
    host: Place = "device" if device == "cpu" else "host"
    return Returned(
        "conv",
        after=(
            ("pool0", Tensor("uint8", (24,), MOVED)),
            ("state", Tensor("uint8", (8,), MOVED[:4] + MOVED[12:16])),
            ("far", int32([1, 2])),
            ("table", int32([2, 3, 3, 4])),
            ("counts", int32([1, 6]).on_host()),
            ("ctx.out.np", Tensor("int64", (3,), (0, -9, 0), on=host)),
            ("ctx.out.gpu", Tensor("int64", (3,), (1, 1, 1))),
            ("ctx.not_observed", 5),
        ),
    )


CREATED = Returned(record("Context"))
MemoryScripts = dict[str, tuple[Case, BreakageVerdict]]


@pytest.fixture(scope="module")
def memory_scripts(tmp_path_factory: pytest.TempPathFactory, device: str) -> MemoryScripts:
    """Cases about what memory holds, of a right and of a wrong subject, with the verdict of their scripts."""
    folder, found = tmp_path_factory.mktemp("memory"), {}
    right = MEMORY.replace("SOURCE", "0x1234")
    wrong = MEMORY.replace("SOURCE", "0x1256")
    with module(folder, "toy_right", right) as good, module(folder, "toy_wrong", wrong) as bad:
        moving = (*MEMORY_LETS, CREATE, move())
        for name in (good, bad):
            expected = (CREATED, moved(device))
            found[f"{name} move"] = memory_case(name, device, *moving, expected=expected)
        outside = (*MEMORY_LETS, CREATE, move(outside=1))
        found["outside"] = memory_case(good, device, *outside, expected=expected)
        jobs: list[tuple[Path, dict[str, str]]] = []
        for name, case in found.items():
            path = folder / name.replace(" ", "_") / "repro.py"
            path.parent.mkdir()
            stated = unsaid(case) if is_right(case) else case
            path.write_text(repro_script(stated, path.parent, folder), encoding="utf-8")
            jobs.append((path, {}))
        verdicts, _ = run_scripts(folder, jobs)
    by_name = {path.parent.name: verdict for (path, _), verdict in zip(jobs, verdicts, strict=True)}
    return {name: (case, by_name[name.replace(" ", "_")]) for name, case in found.items()}


def test_a_script_about_memory_exits_0_where_it_holds_what_it_should(memory_scripts: MemoryScripts) -> None:
    case, verdict = memory_scripts["toy_right move"]
    assert is_right(case)
    assert verdict == BreakageVerdict(0, "the defect is gone\n")


def test_a_script_about_memory_names_the_byte_that_is_wrong(memory_scripts: MemoryScripts) -> None:
    _, verdict = memory_scripts["toy_wrong move"]
    assert verdict.code == 1
    assert "pool0[2] = 0x56, but should be 0x34\n" in verdict.output


def test_a_script_about_memory_names_the_byte_beside_it_that_was_written_to(
    memory_scripts: MemoryScripts,
) -> None:
    _, verdict = memory_scripts["outside"]
    assert verdict == BreakageVerdict(
        1, "byte 7 before pool0 = 0x00, but should be 0xa5\nthe defect is there\n"
    )
