"""Run every broken kernel, and print what the sanitizer says, as docs/broken-kernels.md has it."""

from examples.sanitizer import PAIRS

for pair in PAIRS:
    finding, _, _ = pair.run(pair.broken)
    print(f"- `{pair.name}`: {finding}")
