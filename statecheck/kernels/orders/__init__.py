"""The order in which the programs of a launch make their accesses, and what that changes."""
