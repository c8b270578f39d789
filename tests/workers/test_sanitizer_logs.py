"""What compute-sanitizer prints, as findings."""

from __future__ import annotations

import pytest

from statecheck.workers.compute_sanitizer.parse import Parsed, parse
from statecheck.workers.compute_sanitizer.start import kernel_names

KERNEL = "postprocess_mamba_fused_kernel"


def block(title: str, *details: str) -> str:
    return "\n".join([f"========= {title}", *(f"=========     {line}" for line in details), "========="])


def finding_at(frame: str, title: str = "Invalid __global__ write of size 4 bytes") -> str:
    return block(
        title,
        f"at {frame}",
        "by thread (3,0,0) in block (1,0,0)",
        "Access to 0x7f5e4e200080 is out of bounds",
        "and is 1 bytes after the nearest allocation at 0x7f5e4e200000 of size 128 bytes",
    )


HEAD = "========= COMPUTE-SANITIZER"
OUT_OF_BOUNDS = finding_at(f"{KERNEL}+0x90 in align.py:88")
IN_TORCH = finding_at(
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int, T2, T3)+0x170",
    "Uninitialized __global__ memory read of size 4 bytes",
)
DIED = block(
    'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to '
    "cudaStreamSynchronize.",
    "Saved host backtrace up to driver entry point at error",
)


def summary(errors: int) -> str:
    return f"========= ERROR SUMMARY: {errors} error{'s' * (errors != 1)}"


def parsed(*parts: str, tool: str = "memcheck") -> Parsed:
    return parse("\n".join([HEAD, *parts]), tool, {KERNEL})


IN_PYTHON = finding_at("copy_run+0x1a0 in /home/me/kernels.py:7")
IN_OLDER_WORDS = finding_at(f"0xa0a50 in /opt/it/align.py:12:{KERNEL}")
OTHER_THREAD = OUT_OF_BOUNDS.replace("(3,0,0)", "(4,0,0)").replace("4e200080", "4e200084")
COPY_OF_UNINITIALISED = block(
    "Host API memory access error at host access to 0x7f7fcdc01200 of size 400 bytes",
    "Uninitialized access at 0x7f7fcdc01300 on access by cudaMemcpy source",
)
CALL_FAILS = block('Program hit CUDA_ERROR_NOT_FOUND (error 500) due to "named symbol not found" on ...')
RACE = block(
    f"Error: Race reported between Write access at {KERNEL}+0x130 in align.py:42",
    f"and Read access at {KERNEL}+0x160 in align.py:44 [496 hazards]",
)
NEW_WORDS = block("Something new happened", "somewhere")
FINDINGS: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "kind, kernel and line": (
        (OUT_OF_BOUNDS, summary(1)),
        {
            "kind": "Invalid __global__ write of size 4 bytes",
            "kernel": KERNEL,
            "place": "align.py:88",
            "own": True,
            "text": OUT_OF_BOUNDS.replace("========= ", "").removesuffix("\n========="),
        },
    ),
    "the same in other threads": ((OUT_OF_BOUNDS, OTHER_THREAD, summary(2)), {"count": 2}),
    "no line numbers": ((finding_at(f"{KERNEL}+0x1a0"),), {"kernel": KERNEL, "place": "", "own": True}),
    "a function in a Python file": ((IN_PYTHON,), {"own": True}),
    "a frame in older words": ((IN_OLDER_WORDS,), {"kernel": KERNEL, "place": "/opt/it/align.py:12"}),
    "an older frame without a line": ((finding_at(f"0x150 in {KERNEL}(int*,int)"),), {"kernel": KERNEL}),
    "a kernel of torch": (
        (IN_TORCH, summary(1)),
        {
            "own": False,
            "kernel": "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int, T2, T3)",
        },
    ),
    "a copy of uninitialised memory": ((COPY_OF_UNINITIALISED, summary(1)), {"own": False, "kernel": ""}),
    "calls that fail behind a stopped kernel": (
        ("CASE 0 /a.json", OUT_OF_BOUNDS, DIED, DIED, summary(3)),
        {"kernel": KERNEL},
    ),
    "a call that reports a fault that no kernel was stopped for": (
        ("CASE 0 /a.json", DIED, summary(1)),
        {"own": True},
    ),
    "a call that merely fails": ((CALL_FAILS, summary(1)), {"own": False}),
    "an unknown block": (
        (NEW_WORDS, summary(1)),
        {"kind": "Something new happened", "own": True, "text": "Something new happened\n    somewhere"},
    ),
    "errors that are counted and not printed": (
        (summary(3),),
        {"kind": "the summary counts 3 errors of which none was understood"},
    ),
    "behind what the program prints": ((f"no newline here{OUT_OF_BOUNDS}",), {"kernel": KERNEL}),
    "a race": (
        (RACE, "========= RACECHECK SUMMARY: 1 hazard displayed"),
        {"kernel": KERNEL, "place": "align.py:42", "own": True},
    ),
}


@pytest.mark.parametrize(("parts", "fields"), FINDINGS.values(), ids=FINDINGS)
def test_a_log_is_parsed_into_a_finding(parts: tuple[str, ...], fields: dict[str, object]) -> None:
    (finding,) = parsed(*parts).findings
    assert {name: getattr(finding, name) for name in fields} == fields
    assert "0x7f" not in finding.kind


def test_a_finding_belongs_to_the_case_announced_last() -> None:
    lines = (
        "CASE 0 /a.json",
        OUT_OF_BOUNDS,
        "DONE 0",
        "CASE 1 /b c.json",
        OUT_OF_BOUNDS,
        "DONE 1",
        "CASE 2 /d.json",
    )
    assert [one.case for one in parsed(*lines).findings] == ["/a.json", "/b c.json"]


@pytest.mark.parametrize(
    ("parts", "errors"),
    [(("CASE 0 /a.json", "DONE 0", summary(0)), 0), (("CASE 0 /a.json",), None), (("=" * 30, "=" * 12 + " title " + "=" * 12, summary(0)), 0)],
    ids=["no errors", "cut off", "lines of equals signs"],
)  # fmt: skip
def test_a_log_without_findings_has_what_its_summary_counts(
    parts: tuple[str, ...], errors: int | None
) -> None:
    assert parsed(*parts) == Parsed(errors=errors)


def test_errors_beyond_the_limit_are_counted_apart() -> None:
    beyond = "========= ERROR SUMMARY: 40 errors were not printed. Use --print-limit"
    log = parsed(OUT_OF_BOUNDS, beyond, summary(41))
    assert (log.unprinted, log.errors, len(log.findings)) == (40, 41, 1)


@pytest.mark.parametrize(
    "line",
    [
        "Error: No attachable process found. compute-sanitizer timed-out.",
        "Internal Sanitizer Error: out of memory",
        "Target application terminated before first instrumented API call",
    ],
)
def test_errors_of_the_tool_itself_are_no_findings(line: str) -> None:
    log = parsed(block(line))
    assert (log.findings, log.trouble) == ([], [line])


def test_the_subjects_kernels_are_found_by_name() -> None:
    assert {KERNEL, "batch_memcpy_kernel"} <= kernel_names()
