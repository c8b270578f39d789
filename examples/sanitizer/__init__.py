"""Broken Triton kernels, each with its intact twin, and what the sanitizer says: `python -m examples.sanitizer`."""

from examples.sanitizer import bounds, contents, faults, races

PAIRS = (*bounds.PAIRS, *races.PAIRS, *contents.PAIRS, *faults.PAIRS)
