"""The code that a `repro.py` carries: `script.py` copies from these modules what a case needs, and nothing else.

A script stands alone, so the modules import the standard library, torch, and each other by `from module import name`. Their
`__all__` is what the body of a script calls. What `given` has, each script states itself.
"""
