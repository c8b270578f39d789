"""How long a campaign takes to find what is planted: `python -m lab.hunt`."""
