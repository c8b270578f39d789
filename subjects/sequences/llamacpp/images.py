"""Images in prompts of llama-server: pictures of 8 by 8, and a projector of random weights that makes four positions of each.

In a server with images two of the tokens stand for a picture each, with the token's text behind it: a prompt that ends with an image ends the
process of 2026.10.11549, by an assertion about a batch without tokens.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from statecheck.util.temporary import folder_of_process
from subjects.sequences.conditions import POSITIONS
from subjects.sequences.llamacpp.library import LlamaCpp

_SIZE, _PATCH, _WIDTH, _INNER, _BLOCKS = 8, 4, 8, 16, 2
_METADATA: dict[str, Any] = {
    "has_vision_encoder": True,
    "projector_type": "mlp",
    "use_gelu": True,
    "vision.image_size": _SIZE,
    "vision.patch_size": _PATCH,
    "vision.embedding_length": _WIDTH,
    "vision.feed_forward_length": _INNER,
    "vision.block_count": _BLOCKS,
    "vision.attention.head_count": 2,
    "vision.attention.layer_norm_epsilon": 1e-5,
    "vision.image_mean": [0.5] * 3,
    "vision.image_std": [0.5] * 3,
}


def projector_file(library: LlamaCpp, width: int) -> Path:
    """A file of a projector for a model whose embeddings have this width."""
    square = (_WIDTH, _WIDTH)
    matrices = {
        "v.patch_embd": (_PATCH, _PATCH, 3, _WIDTH),
        "v.position_embd": (_WIDTH, POSITIONS + 1),
        "v.pre_ln": (_WIDTH,),
        "mm.0": (_WIDTH, width),
        "mm.2": (width, width),
    }
    for block in range(_BLOCKS):
        parts = {"ln1": (_WIDTH,), "ln2": (_WIDTH,), "ffn_up": (_WIDTH, _INNER), "ffn_down": (_INNER, _WIDTH)}
        parts |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), square)
        matrices |= {f"v.blk.{block}.{name}": shape for name, shape in parts.items()}
    shapes: dict[str, Sequence[int]] = {"v.class_embd": (_WIDTH,)}
    for name, shape in matrices.items():
        shapes[f"{name}.weight"] = shape
        if not name.endswith("_embd"):
            shapes[f"{name}.bias"] = shape[-1:]
    path = folder_of_process("statecheck-gguf-") / f"projector-{width}.gguf"
    library.write(path, "clip", _METADATA | {"vision.projection_dim": width}, shapes, 0)
    return path


def picture(token: int) -> str:
    """The image that the token stands for, as a PNG in base 64."""
    chance = random.Random(token)
    rows = b"".join(b"\0" + chance.randbytes(3 * _SIZE) for _ in range(_SIZE))
    head = struct.pack(">IIBBBBB", _SIZE, _SIZE, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()
