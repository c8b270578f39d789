"""How a script ends where nothing can be said about the defect."""

from __future__ import annotations

import sys
from typing import NoReturn


def cannot_try(why: str) -> NoReturn:
    """End without a verdict on the defect: with 2, or as `git bisect run` wants it, which skips a revision for 125."""
    print(why)
    sys.exit(125 if sys.argv[1:] == ["--bisect"] else 2)
