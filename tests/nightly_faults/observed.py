"""What a campaign did when it met a fault, held against what it should do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.nightly_faults.night import Night

_NAMES = {None: "does not end", 0: "0 clean", 1: "1 falsified", 2: "2 incomplete", 3: "3 cannot run as asked"}


@dataclass(frozen=True)
class Observed:
    """`said`: sentences of the campaign. `wrong`: what should not be so. `skipped`: why it was not tried."""

    code: str = ""
    said: tuple[str, ...] = ()
    kept: int = 0
    announced: int = 0
    seconds: float = 0.0
    wrong: tuple[str, ...] = ()
    skipped: str = ""

    def and_then(self, later: Observed) -> Observed:
        """Both, one after the other."""
        return Observed(
            self.code if self.code.endswith(later.code) else f"{self.code}, then {later.code}",
            tuple(dict.fromkeys((*self.said, *later.said))),
            self.kept + later.kept,
            self.announced + later.announced,
            self.seconds + later.seconds,
            (*self.wrong, *later.wrong),
            self.skipped or later.skipped,
        )


def judged(
    night: Night,
    *,
    code: int,
    says: Sequence[str] = (),
    least: int = 0,
    recorded: bool = True,
    wrong: Sequence[str] = (),
) -> Observed:
    """Wait for the campaign's end, and hold what there is against what there should be.

    Args:
        says: expressions; each has to be found in a line of the output, and in the record's troubles if it has them.
        least: buckets that have to be found.
        recorded: what is said has to be in the record.
        wrong: what is known to be wrong already.
    """
    found = night.finish()
    announced, kept = night.announced, night.kept
    said = [_line_with(night.output, one) for one in says]
    complaints = [
        *wrong,
        *([] if found == code else [f"exit code {_NAMES.get(found, found)}, but should be {_NAMES[code]}"]),
        *(f"does not say {one!r}" for one, line in zip(says, said, strict=True) if not line),
        *(f"bucket {one} is lost" for one in sorted(announced - kept)),
        *([f"{len(announced)} buckets, but should be {least} or more"] if len(announced) < least else []),
        *(["Traceback of the coordinator"] if "statecheck/cli/process.py" in night.output else []),
        *night.survivors(),
        *(_unrecorded(night, says) if recorded else ()),
    ]
    if complaints:
        complaints.append(night.output[-6000:])
    code_ = _NAMES.get(found, str(found))
    seen = tuple(line for line in said if line)
    return Observed(code_, seen, len(announced & kept), len(announced), night.seconds, tuple(complaints))


def _line_with(text: str, expression: str) -> str:
    return next((line for line in text.splitlines() if re.search(expression, line)), "")


def _unrecorded(night: Night, says: Sequence[str]) -> list[str]:
    record = night.record
    if record is None:
        return ["there is no record"]
    troubles = "\n".join(record.troubles)
    output = [one for one in says if re.search(rf"^trouble: .*{one}", night.output, re.MULTILINE)]
    return [f"{one!r} is not in the record" for one in output if not re.search(one, troubles)]
