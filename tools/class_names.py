"""`python -m tools.class_names`, a part of `make lint`: a class name stands for one concept, or says here why for more."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict

from tools.sources import files

OF_THE_DOCUMENTS = (
    "the documents' class: impl has its own, and an adapter says how another system's is called"
)
APART = "impl and the oracle share no code, and follow the same sentence of the documents"
SHARED_NAMES = {
    "CommonAttentionMetadata": OF_THE_DOCUMENTS,
    "CpuGpuBuffer": OF_THE_DOCUMENTS,
    "GDNAttentionMetadataBuilder": OF_THE_DOCUMENTS,
    "Mamba1AttentionMetadataBuilder": OF_THE_DOCUMENTS,
    "Mamba2AttentionMetadataBuilder": OF_THE_DOCUMENTS,
    "MambaBuffers": OF_THE_DOCUMENTS,
    "MambaCopyBuffers": OF_THE_DOCUMENTS,
    "MambaCopySpec": OF_THE_DOCUMENTS,
    "MambaSpec": OF_THE_DOCUMENTS,
    "MambaSpecDecodeGPUContext": OF_THE_DOCUMENTS,
    "MambaStateShapeCalculator": OF_THE_DOCUMENTS,
    "ConvPrograms": APART,
    "Entry": APART,
    "Move": APART,
}


def classes() -> dict[str, list[str]]:
    """Files by the name of a class in them. Of tests of the harness only what they share: others stand in for something."""
    found = defaultdict(list)
    for file, path in files(".py"):
        if file.startswith("tests/") and "/test_" in file:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file)
    return found


def complaints() -> list[str]:
    """A line for each name that several classes have without a reason, and for each reason that is out of date."""
    several = {name: files for name, files in classes().items() if len(files) > 1}
    complaints = [
        f"class {name}: defined in {' and '.join(files)}, but should be in one module, or in SHARED_NAMES"
        for name, files in several.items()
        if name not in SHARED_NAMES
    ]
    stale = sorted(SHARED_NAMES.keys() - several)
    return complaints + [
        f"class {name}: in SHARED_NAMES, but should have several definitions" for name in stale
    ]


if __name__ == "__main__":
    found = complaints()
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(bool(found))
