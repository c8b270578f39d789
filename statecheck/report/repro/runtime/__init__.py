"""The code that every `repro.py` embeds, a module after the other; `embed.py` says in which order."""
