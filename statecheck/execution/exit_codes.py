"""What the commands exit with."""

CLEAN = 0
FALSIFIED = 1
"""Something is wrong with the subject."""
INCOMPLETE = 2
"""Too little was tried to say so, or the harness itself went wrong."""
MISCONFIGURED = 3
"""The command cannot be run as given."""
MEANINGS = {
    FALSIFIED: "something is wrong with the subject",
    INCOMPLETE: "incomplete, or not to be trusted",
    MISCONFIGURED: "it cannot be run as given",
}
