"""The properties of the port, one item each."""

import my_port

import statecheck

test_port = statecheck.properties(my_port, device="cpu", require=["chunk_offsets"], max_examples=50)
