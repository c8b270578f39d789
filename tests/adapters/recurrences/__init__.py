"""Adapters of recurrences, and defects that are planted in copies of them."""
