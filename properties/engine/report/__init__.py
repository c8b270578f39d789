"""The report of a scenario: what its blocks hold, in words and as tables of blocks over time."""
