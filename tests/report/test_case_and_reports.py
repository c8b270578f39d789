"""What stays of a falsified property: the case, the report, the script, and the replay."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from properties.strategies.batch import Batch, RequestRow, Splitting, metadata
from properties.strategies.block_tables import BlockTable
from properties.strategies.chunks import spread
from properties.strategies.layout import Copy, PaddedState
from properties.strategies.shapes import ShapeArguments
from properties.test_refusals import BAD_INPUTS
from statecheck.case import Case
from statecheck.case.compare import outcome_difference
from statecheck.case.timeline import Arrow, Cell, Moment, TableRow, Timeline, WrongCell
from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
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
    Value,
    View,
    call,
    int32,
    record,
)
from statecheck.cli import main as cli
from statecheck.execution import profiles
from statecheck.execution.example import Bench, Falsified, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.report.bisection import Bisection, TriedVersion
from statecheck.report.case import input_sections
from statecheck.report.markdown import add_bisection, report_text, subject_root, write_report
from statecheck.report.repro.script import needs_statecheck, repro_script
from statecheck.suite.short import lines
from subjects import LAYOUT_VARIABLE, load
from tests.breakages.broken import (
    ROOT,
    BreakageVerdict,
    a_case,
    a_property,
    case_of,
    earlier_json,
    module,
    run_scripts,
)


@dataclass(frozen=True)
class Defect:
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
COMPUTED = call("CommonAttentionMetadata.compute_num_computed_tokens", self=metadata(BATCH))
NAMED_BATCH = (
    Let("lens", int32(BATCH.seq_lens)),
    Let("batch", metadata(BATCH, seq_lens=Name("lens"))),
    call("CommonAttentionMetadata.compute_num_computed_tokens", self=Name("batch")),
)
PAGE = call("MambaSpec.page_size_bytes.fget", self=SPEC)
BAD_PAGE = call(
    "MambaSpec.page_size_bytes.fget",
    self=record("MambaSpec", **dict(SPEC.fields) | {"page_size_padded": 1}),
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
    Defect("element", after(VARLEN, "result[0][-1] += 1"), (CHUNKS,)),
    Defect("dtype", after(VARLEN, "result = tuple(one.long() for one in result)"), (CHUNKS,)),
    Defect("shape", after(VARLEN, "result = (result[0][1:], *result[1:])"), (CHUNKS,)),
    Defect("missing item", after(VARLEN, "result = result[:2]"), (CHUNKS,)),
    Defect("no result", after(VARLEN, "result = None"), (CHUNKS,)),
    Defect("matrix element", after(GATHER, "result[1, 0] += 1"), (TABLE.call(),)),
    Defect("same object", after(GATHER, "result = result.clone()"), (TABLE.call("none"),)),
    Defect("count", after(SPLIT, "result = (result[0] + 1, *result[1:])"), (Splitting(BATCH).call(),)),
    Defect("list for tuple", after(SPLIT, "result = list(result)"), (Splitting(BATCH).call(),)),
    Defect(
        "bool for int", after(SPLIT, "result = (bool(result[0]), *result[1:])"), (Splitting(BATCH).call(),)
    ),
    Defect(
        "identity in a dict",
        after("compute_causal_conv1d_metadata", "result = (result[0], result[1].clone(), result[2])"),
        (CONV,),
    ),
    Defect("keys", after("compute_causal_conv1d_metadata", "del result[0][8]['mlist']"), (CONV,)),
    Defect("address", after(CONV_COPY, "result.start_addr += 1"), (COPY.call(CONV_COPY),)),
    Defect("elements to copy", after(CONV_COPY, "result.num_elements -= 1"), (COPY.call(CONV_COPY),)),
    Defect(
        "record of another class",
        after(CONV_COPY, "result = type('Spec', (impl.MambaCopySpec,), {})(**vars(result))"),
        (COPY.call(CONV_COPY),),
    ),
    Defect(
        "layout not read",
        after("is_conv_state_dim_first", "result = False"),
        (call("is_conv_state_dim_first"), CHANNELS_FIRST),
    ),
    Defect("no refusal", "def divide(x, y):\n    return x // y\n", (call("divide", x=5, y=2),)),
    Defect(
        "refusal of another type",
        "def divide(x, y):\n    raise RuntimeError('x')\n",
        (call("divide", x=5, y=2),),
    ),
    Defect(
        "refusal of another argument",
        "def divide(x, y):\n    raise ValueError('max = 5, y = 2')\n",
        (call("divide", x=5, y=2),),
    ),
    Defect("exception", before(VARLEN, "raise RuntimeError('lost')"), (CHUNKS,)),
    Defect("stale result", f"import functools\n{VARLEN} = functools.lru_cache(impl.{VARLEN})\n", IN_PLACE),
    Defect(
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
    Defect(
        "argument written",
        before(VARLEN, "args[0][0] = 1"),
        (call(VARLEN, query_start_loc=int32([0]), chunk_size=4),),
    ),
    Defect(
        "gap written",
        before(VARLEN, "args[0].as_strided((1,), (1,), args[0].storage_offset() - 1).zero_()"),
        (CHUNKS,),
    ),
    Defect(
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
    Defect(
        "record refused",
        "class MambaSpec(impl.MambaSpec):\n    def __post_init__(self):\n        raise ValueError('shapes')\n",
        (PAGE,),
    ),
    Defect(
        "record not refused",
        "class MambaSpec(impl.MambaSpec):\n    def __post_init__(self):\n        pass\n",
        (BAD_PAGE,),
    ),
)


def source(defect: Defect) -> str:
    return f"import impl\nfrom impl import *\n{defect.source}"


def falsified(subject_name: str, device: str, *steps: Step) -> Case:
    subject = load(subject_name)
    with pytest.raises(Falsified) as caught:
        Bench(subject, InProcess(subject, device)).begin(a_property()).agrees(*steps)
    return caught.value.case


@dataclass
class Recording(Bench):
    """Keeps its trials."""

    trials: list[Trial] = field(default_factory=list)

    def begin(self, tested: Property) -> Trial:
        trial = super().begin(tested)
        self.trials.append(trial)
        return trial


def cases_of_properties(device: str) -> Iterator[Case]:
    """A few examples of every property, as far as the default subject answers them by the rules."""
    subject = load("impl")
    for tested in load_properties().values():
        bench = Recording(subject, InProcess(subject, device))
        if tested.not_applicable(bench):
            continue
        # A property that fails does so in a test of its own.
        with contextlib.suppress(Exception):
            tested.explore(bench, seed=1, max_examples=1 if tested.launches else 4)
        for trial in bench.trials:
            # No call, no case: the example was discarded before its first one.
            with contextlib.suppress(IndexError):
                case = recorded(trial)
                if is_right(case):
                    yield case


def recorded(trial: Trial) -> Case:
    with pytest.raises(Falsified) as caught:
        trial.holds(False, "recorded for a test")
    return unsaid(caught.value.case)


def unsaid(case: Case) -> Case:
    """The case with nothing wrong about it, and so nothing to say."""
    return replace(case, failure=None)


def is_right(case: Case) -> bool:
    outcomes = zip(case.expected, case.actual, strict=True)
    return all(outcome_difference(want, got, places=case.device != "cpu") is None for want, got in outcomes)


@contextlib.contextmanager
def unshrunk() -> Iterator[None]:
    """Hypothesis does not shrink what it finds."""
    settings.register_profile("unshrunk", phases=[Phase.generate], deadline=None)
    settings.load_profile("unshrunk")
    try:
        yield
    finally:
        profiles.load()


@dataclass(frozen=True)
class Scripts:
    """Where the reports are, how their scripts ended, and what the process had imported by then."""

    broken: dict[str, BreakageVerdict]
    intact: dict[str, BreakageVerdict]
    correct: list[tuple[Case, BreakageVerdict]]
    modules: set[str]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory, device: str) -> Scripts:
    """Every script of these tests, run in one process."""
    folder = tmp_path_factory.mktemp("scripts")
    reports = {}
    for defect in DEFECTS:
        with module(folder, defect.module, source(defect)):
            case = falsified(defect.module, device, *defect.steps)
            reports[defect.name] = write_report(case, folder / "reports", load(defect.module).module)
    correct = [unsaid(case_of(load("impl"), device, bad.call)) for bad in BAD_INPUTS]
    correct.append(unsaid(case_of(load("impl"), device, CHANNELS_FIRST, call("is_conv_state_dim_first"))))
    with unshrunk():
        correct += cases_of_properties(device)
    places = [folder / "correct" / str(number) / "repro.py" for number in range(len(correct))]
    for case, place in zip(correct, places, strict=True):
        place.parent.mkdir(parents=True)
        place.write_text(repro_script(case, place.parent, ROOT), encoding="utf-8")
        # Scripts of an order of programs have statecheck replay it.
        case.save(place.parent / "case.json")
    found = [directory / "repro.py" for directory in reports.values()]
    intact = {"SUBJECT": "impl", "SUBJECT_PATH": str(ROOT)}
    jobs: list[tuple[Path, dict[str, str]]] = [(script, {}) for script in found]
    jobs += [(script, intact) for script in found]
    jobs += [(script, {}) for script in places]
    verdicts, modules = run_scripts(folder, jobs)
    many = len(found)
    return Scripts(
        broken=dict(zip(reports, verdicts[:many], strict=True)),
        intact=dict(zip(reports, verdicts[many : 2 * many], strict=True)),
        correct=list(zip(correct, verdicts[2 * many :], strict=True)),
        modules=modules,
    )


named_defects = pytest.mark.parametrize("name", [defect.name for defect in DEFECTS])


@pytest.mark.slow
@named_defects
def test_the_script_exits_1_with_the_defect_and_0_without(scripts: Scripts, name: str) -> None:
    verdict = scripts.broken[name]
    assert verdict.code == 1, verdict
    assert verdict.output.endswith("the defect is there\n")
    assert scripts.intact[name] == BreakageVerdict(0, "the defect is gone\n")


@pytest.mark.slow
def test_the_script_of_every_call_that_is_answered_by_the_rules_exits_0(scripts: Scripts) -> None:
    wrong = [(case, verdict) for case, verdict in scripts.correct if verdict.code != 0]
    assert wrong == []


@pytest.mark.slow
def test_scripts_are_made_for_every_property(scripts: Scripts, trial: Bench) -> None:
    applicable = {name for name, one in load_properties().items() if not one.not_applicable(trial)}
    assert applicable <= {case.property_name for case, _ in scripts.correct}


@pytest.mark.slow
def test_the_script_needs_neither_hypothesis_nor_the_harness(scripts: Scripts) -> None:
    loaded = {name.split(".")[0] for name in scripts.modules}
    assert not loaded & {"hypothesis", "oracle", "properties", "pytest", "statecheck", "subjects"}


MEMORY = """
import torch, triton
import triton.language as tl

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

@triton.jit
def reset_kernel(count_ptr, seen_ptr):
    count = tl.load(count_ptr)
    if RACE == 1 and tl.program_id(0) == 0:
        tl.store(count_ptr, 1)
    tl.store(seen_ptr + tl.program_id(0), count)
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


RESET = call(
    "harness.launch",
    kernel="reset_kernel",
    grid=(3,),
    arguments={"count_ptr": Name("count"), "seen_ptr": Name("seen")},
    constexprs={},
    observes=("count", "seen"),
    schedule="interleaved:1",
)
RESET_LETS = (Let("count", int32([4])), Let("seen", int32([0, 0, 0])))
KEPT = Returned(None, after=(("count", int32([4])), ("seen", int32([4, 4, 4]))))
CREATED = Returned(record("Context"))


@pytest.fixture(scope="module")
def memory_scripts(
    tmp_path_factory: pytest.TempPathFactory, device: str
) -> dict[str, tuple[Case, BreakageVerdict | None]]:
    """Cases about what memory holds, of a right and of a wrong subject, with the verdict of their scripts."""
    folder, found = tmp_path_factory.mktemp("memory"), {}
    right = MEMORY.replace("SOURCE", "0x1234").replace("RACE", "0")
    wrong = MEMORY.replace("SOURCE", "0x1256").replace("RACE", "1")
    with module(folder, "toy_right", right) as good, module(folder, "toy_wrong", wrong) as bad:
        moving = (*MEMORY_LETS, CREATE, move())
        for name in (good, bad):
            expected = (CREATED, moved(device))
            found[f"{name} move"] = memory_case(name, device, *moving, expected=expected)
            found[f"{name} reset"] = memory_case(name, device, *RESET_LETS, RESET, expected=(KEPT,))
        outside = (*MEMORY_LETS, CREATE, move(outside=1))
        found["outside"] = memory_case(good, device, *outside, expected=expected)
        jobs: list[tuple[Path, dict[str, str]]] = []
        # What needs an order of programs has statecheck replay it, whose rules know no toys.
        for name, case in found.items():
            if needs_statecheck(case):
                continue
            path = folder / name.replace(" ", "_") / "repro.py"
            path.parent.mkdir()
            told = unsaid(case) if is_right(case) else case
            path.write_text(repro_script(told, path.parent, folder), encoding="utf-8")
            jobs.append((path, {}))
        verdicts, _ = run_scripts(folder, jobs)
    by_name = {path.parent.name: verdict for (path, _), verdict in zip(jobs, verdicts, strict=True)}
    return {name: (case, by_name.get(name.replace(" ", "_"))) for name, case in found.items()}


MemoryScripts = dict[str, tuple[Case, BreakageVerdict | None]]


def test_a_script_about_memory_exits_0_where_it_holds_what_it_should(memory_scripts: MemoryScripts) -> None:
    case, verdict = memory_scripts["toy_right move"]
    assert is_right(case)
    assert verdict == BreakageVerdict(0, "the defect is gone\n")


def test_a_script_about_memory_names_the_byte_that_is_wrong(memory_scripts: MemoryScripts) -> None:
    _, verdict = memory_scripts["toy_wrong move"]
    assert verdict is not None
    assert verdict.code == 1
    assert "pool0[2] = 0x56, but should be 0x34\n" in verdict.output


def test_a_script_about_memory_names_the_byte_beside_it_that_was_written_to(
    memory_scripts: MemoryScripts,
) -> None:
    _, verdict = memory_scripts["outside"]
    assert verdict == BreakageVerdict(
        1, "byte 7 before pool0 = 0x00, but should be 0xa5\nthe defect is there\n"
    )


@pytest.mark.parametrize("name", ["toy_right move", "toy_wrong reset", "outside"])
def test_cases_about_memory_come_back_from_json(memory_scripts: MemoryScripts, name: str) -> None:
    case, _ = memory_scripts[name]
    assert Case.from_json(case.to_json()) == case


@pytest.mark.parametrize("sentence", ['ends with a quote"', '"""', "a \\ backslash", "two\nlines"])
def test_any_sentence_leaves_the_script_well_formed(sentence: str) -> None:
    ast.parse(repro_script(a_case(sentence=sentence), Path(), None))


LINES = {
    "device": (a_case(device="cuda"), 'DEVICE = checked_device(os.environ.get("DEVICE", "cuda"))'),
    "place": (a_case(), 'import_subject("toy", "../..")'),
    "long run": (
        a_case(steps=(call("cdiv", x=int32([1, 2] + [7] * 5000), y=2),)),
        "torch.tensor([1, 2] + [7] * 5000, dtype=torch.int32",
    ),
    "names that are taken": (
        a_case(steps=(Let("x", int32([1])), call("divide", x=5, y=Name("x"), rows=2, self=1))),
        "subject.divide(x_, y, rows_, self_)",
    ),
    "no contents": (
        a_case(steps=(call("divide", x=Tensor("int8", (3, 2, 2), None, strides=(2**20, 2, 1)), y=1),)),
        "x = torch.empty(2097156, dtype=torch.int8, device=DEVICE).as_strided(",
    ),
}


@pytest.mark.parametrize(("case", "line"), LINES.values(), ids=LINES)
def test_a_script_writes_values_so(case: Case, line: str, tmp_path: Path) -> None:
    assert line in repro_script(case, tmp_path / "reports" / "one", tmp_path)


def test_the_root_of_a_subject_is_the_folder_to_import_it_from(tmp_path: Path) -> None:
    with module(tmp_path, "toy_rooted", "") as name:
        roots = [subject_root(one) for one in (load("impl").module, load(name).module, pytest)]
    assert roots == [ROOT, tmp_path.resolve(), None]


FILES = ["case.json", "report.html", "report.md", "repro.py", "test_repro.py"]
TIMELINE = Timeline(
    (Moment("step 1", (TableRow("r0", 0, 1, (Cell(0, ""), Cell(3, "8 tokens", 8, "r0")), (0,), (1,)),)),),
    (Arrow(0, "r0", 0, 0, 1),),
    WrongCell(0, "r0", 0, 1, "8 tokens, but should be 7", origin=(0, "r0", 0, 0)),
)


def written(folder: Path, device: str = "cpu", **changes: object) -> tuple[Case, Path]:
    """The report of a defect that shows in the second row of a result."""
    with module(folder, "toy_reported", source(DEFECTS[5])):
        case = falsified("toy_reported", device, *DEFECTS[5].steps)
        case = replace(case, **changes)  # type: ignore[arg-type]
        return case, write_report(case, folder / "reports", load("toy_reported").module, note="A note.")


def test_a_report_has_its_files_in_a_folder_of_date_property_and_hash(tmp_path: Path) -> None:
    case, directory = written(tmp_path)
    assert sorted(path.name for path in directory.iterdir()) == FILES
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d-toys_divide-{case.digest}", directory.name)
    assert Case.load(directory / "case.json") == case


def test_a_page_keeps_its_picture_when_it_is_told_since_when_the_case_is_wrong(tmp_path: Path) -> None:
    _, directory = written(tmp_path, timeline=TIMELINE)
    before = (directory / "report.html").read_text(encoding="utf-8")
    add_bisection(directory, Bisection("releases", ("1",), (TriedVersion("1", "FAILED"),)))
    after = (directory / "report.html").read_text(encoding="utf-8")
    assert "wrong in 1" in after
    assert after.count("<svg") == before.count("<svg") == 1


def test_reporting_the_same_input_again_replaces_its_report(tmp_path: Path) -> None:
    written(tmp_path, seed=1)
    written(tmp_path, seed=2)
    assert len(list((tmp_path / "reports").glob("*/"))) == 1


PARTS = (
    "# toy_reported: toys divide\n",
    "**Should hold:** Toys divide.\n",
    "**Seen instead:** `result[1, 0] = 4, but should be 3 [mamba_get_block_table_tensor(",
    "A note.\n",
    "\nblock_table = torch.tensor([1, 2, 132832238, 3, 4, 132832238], dtype=torch.int32).as_strided(",
    "\nseq_lens = torch.tensor([5, 1], dtype=torch.int32)\n",
    "\nmamba_get_block_table_tensor(block_table=block_table, seq_lens=seq_lens, kv_cache_spec=",
    ", mamba_cache_mode='align')\n",
    "\nexpected    int32[[2], [3]]\nactual      int32[[2], [4]]\n",
    "\ndifference  result[1, 0] = 4, but should be 3\n",
    "-m statecheck replay ",
    " --subject toy_reported --device cpu`",
    "repro.py` exits 1",
    "| device | cpu |",
    "| seed | 77 |",
    "| revision | ",
    "| torch | ",
    "| triton | ",
)


def test_a_report_says_everything_that_an_issue_needs(tmp_path: Path) -> None:
    _, directory = written(tmp_path, seed=77)
    text = (directory / "report.md").read_text(encoding="utf-8")
    places = [text.find(part) for part in PARTS]
    assert [part for part, place in zip(PARTS, places, strict=True) if place < 0] == []


def test_an_input_calls_methods_as_one_would_write_it() -> None:
    steps = (
        call("Toy", size=4, bind="toy"),
        call("Toy.turn", self=Name("toy"), by=2),
    )
    (section,) = input_sections(a_case(steps=steps))
    assert section.pieces == ("toy = Toy(size=4)", "toy.turn(by=2)")


def test_a_mark_stands_below_the_first_element_that_differs(tmp_path: Path) -> None:
    numbers = list(range(95, 125))
    changed = [*numbers[:20], -1, *numbers[21:25], -1]
    case = a_case(expected=(Returned(int32(numbers)),), actual=(Returned(int32(changed)),))
    lines = report_text(case, tmp_path).splitlines()
    (mark,) = [number for number, line in enumerate(lines) if line.lstrip().startswith("^")]
    column = lines[mark].index("^")
    assert (lines[mark - 2][column:].split(",")[0], lines[mark - 1][column:].split(",")[0]) == ("115", "-1")


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_input_of_a_report_is_python(tmp_path: Path, device: str, defect: Defect) -> None:
    case = case_of(load("impl"), device, *defect.steps)
    (block,) = re.findall(r"```python\n(.*?)\n```", report_text(case, tmp_path), re.DOTALL)
    assert isinstance(ast.parse(block).body[-1], ast.Expr)


def test_the_digest_is_of_the_property_the_subject_and_the_input_alone() -> None:
    others = [
        a_case(property_name="toys_add"),
        a_case(subject="impl"),
        a_case(steps=(call("divide", x=5, y=3),)),
    ]
    assert a_case().digest not in {other.digest for other in others}
    same = a_case(seed=4, device="cuda", message="else", sentence="Else.", timeline=TIMELINE)
    assert a_case().digest == same.digest


@pytest.mark.parametrize("schema", [1, 2])
def test_a_case_from_before_timelines_is_read_as_one_without(schema: int) -> None:
    assert Case.from_json(earlier_json(a_case(), schema)) == a_case()


@pytest.mark.parametrize(
    "timeline",
    [
        5,
        {"Cell": {"block": 1, "holds": ""}},
        {"Timeline": {"moments": 5}},
        {"Timeline": {"moments": {"tuple": [5]}}},
        {"Timeline": {"moments": {"tuple": []}, "hook": 1}},
    ],
    ids=json.dumps,
)
def test_a_case_with_something_else_for_a_timeline_is_refused(timeline: object) -> None:
    content = json.loads(a_case().to_json()) | {"timeline": timeline}
    with pytest.raises(ValueError, match="but should"):
        Case.from_json(json.dumps(content))


def test_saving_a_case_leaves_that_case_and_no_other_file(tmp_path: Path) -> None:
    for seed in (1, 2):
        a_case(seed=seed).save(tmp_path / "new" / "case.json")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["case.json"]
    assert Case.load(tmp_path / "new" / "case.json") == a_case(seed=2)


def replayed(path: Path, subject: str, device: str = "auto") -> int:
    return cli.main(["replay", str(path), "--subject", subject, "--device", device])


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_replay_fails_on_the_broken_implementation_and_passes_on_the_intact_one(
    tmp_path: Path, device: str, capsys: pytest.CaptureFixture[str], defect: Defect
) -> None:
    with module(tmp_path, defect.module, source(defect)) as name:
        path = falsified(name, device, *defect.steps).save(tmp_path / "case.json")
        codes = replayed(path, name, device), replayed(path, "impl", device)
    first, second = capsys.readouterr().out.splitlines()
    assert codes == (1, 0)
    assert (first.split(":")[0], second.split(":")[0]) == ("FAILED", "FIXED")


@pytest.mark.parametrize("function", ["divide", "copy_kernel"])
def test_a_replay_on_a_subject_that_lacks_the_function_is_not_applicable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str
) -> None:
    launch = call("harness.launch", kernel="copy_kernel", grid=(1,), arguments={}, constexprs={})
    case = a_case() if function == "divide" else a_case(steps=(launch,))
    with module(tmp_path, "toy_empty", "") as name:
        assert replayed(case.save(tmp_path / "case.json"), name) == 2
    assert capsys.readouterr().out == f"NOT APPLICABLE: toy_empty has no {function}\n"


NO_CASE = {
    "empty": "",
    "no fields": "{}",
    "another schema": '{"schema": 99}',
    "a NUL": "\x00",
    "no file": None,
}


@pytest.mark.parametrize("text", NO_CASE.values(), ids=NO_CASE)
def test_a_replay_of_what_is_no_case_is_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    if text is not None:
        (tmp_path / "case.json").write_text(text, encoding="utf-8")
    assert replayed(tmp_path / "case.json", "impl") == 3
    assert capsys.readouterr().err.startswith("error: ")
    assert replayed(tmp_path, "impl") == 3
    assert replayed(a_case().save(tmp_path / "case.json"), "no_such_module") == 3


def test_a_replay_calls_documented_functions_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace"
    evil = a_case(steps=(call("os.system", command=f"touch {trace}"),))
    with module(tmp_path, "toy_with_os", "import os\n") as name:
        code = replayed(evil.save(tmp_path / "case.json"), name)
    assert (code, trace.exists()) == (3, False)
    assert "os.system" in capsys.readouterr().err


@pytest.mark.parametrize(
    "value",
    [Function("os.system"), [{"a": record("R", call=Function("os.system"))}]],
    ids=["alone", "inside"],
)
def test_a_replay_hands_over_documented_functions_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: Value
) -> None:
    steps = (Let("a", value), call("cdiv", x=5, y=2))
    case = a_case(steps=steps)
    with module(tmp_path, "toy_with_os", "import os\ndef cdiv(x, y): pass\n") as name:
        code = replayed(case.save(tmp_path / "case.json"), name)
    assert code == 3
    assert "os.system" in capsys.readouterr().err


def test_a_replay_needs_no_property_of_that_name(tmp_path: Path) -> None:
    steps = (ShapeArguments("short_conv_state_shape", (("intermediate_size", 4), ("conv_kernel", 4))).call(),)
    case = replace(unsaid(case_of(load("impl"), "cpu", *steps)), property_name="long_gone")
    assert replayed(case.save(tmp_path / "case.json"), "impl") == 0


def test_a_report_a_script_and_a_test_say_the_id_beside_the_sentence(tmp_path: Path) -> None:
    case = a_case(property_id="toys/divide")
    written = (report_text(case, tmp_path), repro_script(case, tmp_path, None), "\n".join(lines(case)))
    assert [f"{case.sentence} (toys/divide)" in text for text in written] == [True, True, True]
    assert case.should_hold != replace(case, property_id="").should_hold == case.sentence
