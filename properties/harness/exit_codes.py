"""What the commands exit with."""

CLEAN = 0
FALSIFIED = 1
"""Something is wrong with the subject."""
INCOMPLETE = 2
"""Too little was tried to say so, or the harness itself went wrong."""
MISCONFIGURED = 3
"""The command cannot be run as given."""
