"""Broken Triton kernels, each with its intact twin, and what finds them: `python -m tests.gallery`."""
