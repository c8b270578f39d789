"""Conformance vectors: inputs and what the rules expect of them, for ports that run neither Python nor this harness."""
