"""Launches of Triton kernels on CPU tensors, executed from Triton's own intermediate language."""
