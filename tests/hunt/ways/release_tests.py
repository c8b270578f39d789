"""The test files of a release itself, where they run without a GPU: do they fail where a defect is planted?

They are not in the wheel. `RELEASE_TESTS` names a folder with the `tests` of the release's source distribution; what fails there without a
defect, for want of a GPU or of a network, is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

FILES = {
    "vllm": (
        "tests/v1/core/test_async_scheduler.py",
        "tests/v1/core/test_mamba_align_chunk_split.py",
        "tests/v1/core/test_prefix_caching.py",
        "tests/v1/core/test_scheduler.py",
        "tests/v1/core/test_single_type_kv_cache_manager.py",
        "tests/v1/attention/test_gdn_metadata_builder.py",
        "tests/v1/attention/test_gdn_zero_draft_spec_rows.py",
        "tests/v1/attention/test_mamba_align_block_table.py",
        "tests/v1/attention/test_mamba_metadata_builder.py",
        "tests/v1/worker/test_mamba_hybrid_model_state.py",
        "tests/v1/worker/test_mamba_utils.py",
        "tests/v1/worker/test_pp_utils.py",
        "tests/v1/kv_connector/unit/test_invalid_blocks_correctness.py",
        "tests/v1/kv_connector/unit/test_kv_load_failure_recovery.py",
        "tests/v1/kv_connector/unit/test_nixl_connector_hma.py",
        "tests/v1/kv_connector/unit/test_remote_prefill_lifecycle.py",
    ),
}
"""By project, the files about schedulers, caches, builders, states and connectors."""
VARIABLE = "RELEASE_TESTS"


def folder_of_tests() -> Path:
    """The folder that has `tests`.

    Raises:
        ValueError: the variable names none.
    """
    folder = Path(os.environ.get(VARIABLE, ""))
    if not os.environ.get(VARIABLE) or not (folder / "tests").is_dir():
        rule = "a folder with the tests of the release's source distribution"
        raise ValueError(f"{VARIABLE} = {str(folder)!r}, but should be {rule} [release_tests]")
    return folder


def command(
    python: Path, project: str, folder: Path, *, failing: tuple[str, ...] = (), first: bool = True
) -> list[str]:
    """pytest on the project's files, without those that fail anyway; ends at the first failure if `first`."""
    files = [one for one in FILES[project] if (folder / one).is_file()]
    options = [
        "-q",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
        "-rfE",
        "--tb=no",
        *["-x"] * first,
    ]
    return [str(python), "-m", "pytest", *options, *(f"--deselect={one}" for one in failing), *files]


def failing_tests(written: str) -> tuple[str, ...]:
    """The tests that failed, and the files that could not be read, by the last lines of pytest."""
    return tuple(re.findall(r"^(?:FAILED|ERROR) (\S+)", written, re.MULTILINE))


def tests_run(written: str) -> int:
    """How many tests passed or failed, by the last line of pytest."""
    lines = written.strip().splitlines()
    return sum(map(int, re.findall(r"(\d+) (?:passed|failed|error)", lines[-1]))) if lines else 0


def failing_without_defect(python: Path, project: str, release: str, folder: Path) -> tuple[str, ...]:
    """The tests that fail in the release as it is; run once, and kept in the folder."""
    kept = folder / f"failing-{project}-{release}.txt"
    if not kept.exists():
        done = subprocess.run(
            command(python, project, folder, first=False),
            cwd=folder,
            env=environment({}),
            capture_output=True,
            text=True,
            check=False,
        )
        kept.write_text("\n".join(failing_tests(done.stdout)), encoding="utf-8")
    return tuple(kept.read_text(encoding="utf-8").split("\n")) if kept.stat().st_size else ()


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Without a network, on one thread."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **variables}
