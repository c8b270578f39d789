"""How long a campaign takes to find what is planted: `make hunt`."""
