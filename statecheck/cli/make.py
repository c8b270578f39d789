"""Variables that make was given: `cli_make.py MAKEFILE GIVEN...` prints which of them is misspelt, if one is.

Run by the Makefile before anything is set up, by any Python. make hands variables that it does not know to the commands as
variables of the environment, so that only what looks like a misspelt one is wrong.
"""

import re
import sys
from difflib import get_close_matches
from pathlib import Path

PASSED_ON = ("PYTHONPATH", "CAMPAIGN", "CUDA_VISIBLE_DEVICES")
"""Variables of the environment that the commands read, some of them close to one of make's."""
_LIKENESS = 0.75


def misspelt(given: list[str], known: list[str]) -> str:
    """The first given name that is none, but close to a known one, as a sentence; "" if there is none."""
    there = [*known, *PASSED_ON]
    for name in given:
        close = get_close_matches(name.upper(), there, n=1, cutoff=_LIKENESS)
        if close and name not in there:
            return f"{name} is no variable of this Makefile: did you mean {close[0]}?"
    return ""


def variables(makefile: str) -> list[str]:
    """What people may set."""
    return re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE)


if __name__ == "__main__":
    print(misspelt(sys.argv[2:], variables(Path(sys.argv[1]).read_text(encoding="utf-8"))))
