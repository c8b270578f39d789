"""What is told of an engine's life: what its blocks hold, in words and as tables of blocks over time."""
