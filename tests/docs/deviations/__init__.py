"""Of each row of docs/deviations.md, in its order: the place that it names, and its input as steps."""

from statecheck.case.values import Step

Row = tuple[str, tuple[Step, ...]]
