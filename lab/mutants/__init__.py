"""Mutants of a subject's source, of the oracle and of the harness: which of them the properties and tests notice.

A mutant is a small change of one file, such as `<` for `<=`. It is *killed* by the first pytest item that passes on the source as it
is and fails on the mutant; a mutant that no item notices *survives*, and shows what the properties do not say.
"""
