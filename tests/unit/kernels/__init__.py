"""Tests of how kernels are executed on CPU tensors."""
