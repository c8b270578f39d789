"""One concept, one class name: those that stand for more than one class, and why."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from properties.meta.sources import sources

ROOT = Path(__file__).resolve().parents[3]
OF_THE_DOCUMENTS = (
    "the documents' class: impl has its own, and an adapter says how another system's is called"
)
APART = "impl and the oracle share no code, and follow the same sentence of the documents"
CARRIED = "repro.py carries it, and what it carries imports nothing of this repository; the class does what its namesake does"
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
    "Fake": CARRIED,
    "Graph": CARRIED,
    "GraphReads": CARRIED,
    "NotOffered": CARRIED,
}


def classes() -> dict[str, list[str]]:
    """Files by the name of a class in them. Of tests of the harness only what they share: others stand in for something."""
    found = defaultdict(list)
    for file in sources():
        path = ROOT / file
        if "/meta/" in file and path.name.startswith("test_"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file)
    return found


def test_a_class_name_stands_for_one_concept() -> None:
    several = {name: files for name, files in classes().items() if len(files) > 1}
    nameless = {name: files for name, files in several.items() if name not in SHARED_NAMES}
    assert nameless == {}
    assert sorted(several) == sorted(SHARED_NAMES)
