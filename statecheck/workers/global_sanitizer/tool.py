"""Triton's global-memory sanitizer, where it is there and tells the controls apart; it then watches cases as the other tools do."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from statecheck import rooms
from statecheck.workers.compute_sanitizer.parse import Parsed, ToolFinding
from statecheck.workers.compute_sanitizer.process import execute
from statecheck.workers.global_sanitizer.controls import CONTROLS
from statecheck.workers.global_sanitizer.judge import Opinion, ask, judge
from statecheck.workers.global_sanitizer.parse import TOOL, parse

_CONTROL_SECONDS = 180.0
_REPORTED = {
    "write_write": ("write after write race",),
    "read_write": ("read after write race", "write after read race"),
}
# Without torch's cache there are no memory pools, and the sanitizer's allocator is one.
_UNSET = (
    "TRITON_INTERPRET",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)
_SET = {
    "TRITON_INSTRUMENTATION_MODE": TOOL,
    # Else its reports would have no line.
    "TRITON_DISABLE_LINE_INFO": "0",
    # A report is of the launch that was announced last.
    "CUDA_LAUNCH_BLOCKING": "1",
    "NO_COLOR": "1",
    "PYTHONFAULTHANDLER": "1",
}


@dataclass
class GlobalSanitizer:
    """The sanitizer of the Triton that is imported here. `name` is what the command calls it."""

    subject: str
    version: str
    launches: Path
    """The folder in which launches are written down, to be made again on a CPU."""
    controls: dict[str, str] = field(default_factory=dict)
    """What was reported of each control, "" where nothing was."""
    name: str = TOOL

    def command(self, replay: Sequence[str]) -> list[str]:
        return [*replay, "--launches", str(self.launches)]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
        return kept | _SET | rooms.variables()

    def parse(self, text: str, kernels: Collection[str]) -> Parsed:
        return parse(text, kernels)

    def judged(self, findings: Sequence[ToolFinding]) -> list[ToolFinding]:
        """The reports with verdicts; a second opinion is asked for once for each launch."""
        launches = dict.fromkeys(one.launch for one in findings if one.own and one.launch)
        opinions = {launch: ask(self.subject, launch) for launch in launches}
        none = Opinion(reason="it was reported before the first one")
        shares = bool(self.controls.get("shared_word"))
        return [
            judge(one, opinions.get(one.launch, none), shares_words=shares) if one.own else one
            for one in findings
        ]


def find(subject: str, out: Path) -> GlobalSanitizer | str:
    """The sanitizer, or why there is none, in a sentence. The logs of its controls are left in `out`.

    Each control runs in a process of its own, since a report ends the process.
    """
    import triton

    if not _is_installed():
        return f"Triton {triton.__version__} has no global-memory sanitizer; 3.8 and later do"
    found = GlobalSanitizer(subject, f"Triton {triton.__version__}", out / "launches")
    for name in CONTROLS:
        said = _control(found, name, out / f"{TOOL}-control-{name}.log")
        if said.trouble:
            return f"the sanitizer of Triton {triton.__version__} does not work here: {said.trouble}"
        found.controls[name] = said.reported
    return found


def _is_installed() -> bool:
    try:
        return find_spec("triton.experimental.gsan") is not None
    except ModuleNotFoundError:
        # Older versions have nothing experimental at all.
        return False


@dataclass(frozen=True)
class _Said:
    reported: str = ""
    trouble: str = ""


def _control(found: GlobalSanitizer, name: str, log: Path) -> _Said:
    """What is reported of a control, and whether that is as it should be."""
    module = "statecheck.workers.global_sanitizer.controls"
    execute([sys.executable, "-m", module, name], log, _CONTROL_SECONDS, found.environment)
    text = log.read_text(encoding="utf-8", errors="replace")
    kinds = [one.kind for one in found.parse(text, ()).findings]
    if not kinds and f"ENDED {name}" not in text.splitlines():
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
        return _Said(trouble=f"control {name} did not end: {last}; see {log}")
    if name in _REPORTED and not set(kinds) & set(_REPORTED[name]):
        return _Said(trouble=f"control {name} has a race, and it was not reported; see {log}")
    if name == "right" and kinds:
        return _Said(trouble=f"control {name} has no race, and a {kinds[0]} was reported; see {log}")
    return _Said(reported=", ".join(dict.fromkeys(kinds)))
