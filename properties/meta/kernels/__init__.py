"""Tests of `harness/kernels`."""
