"""The documents' rules restated on ints, lists, bytes and small dataclasses, with the standard library alone."""
