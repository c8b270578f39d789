"""The tests that hold a subject against the oracle, and the machinery around them."""
