"""Proofs about the scalar decisions of kernels, taken from their IR, and of the oracle, taken from its code, as bit-vectors."""
