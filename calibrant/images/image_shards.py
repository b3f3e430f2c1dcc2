"""The layout of Parquet image shards, which training reads and writes and `predict` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibrant.errors import DataError

# Names that a column goes by; the first is what Calibrant writes.
IMAGES = ("image", "img", "jpg", "png", "bytes")
LABELS = ("label", "labels", "class")
KEYS = ("key", "id", "__key__")


def image_column(schema: Any, file: Path) -> tuple[str, bool]:
    """Its name, and whether it is a struct with the bytes in a field, as Hugging Face writes it."""
    import pyarrow.types as types

    for name in (*IMAGES, *schema.names):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        if types.is_binary(kind) or types.is_large_binary(kind):
            return name, False
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            return name, True
    fix = "is it a predictions file?" if "logits" in schema.names else "write encoded images to a column `image`"
    raise DataError(f"has no column of image bytes (it has {', '.join(schema.names[:8])})", where=file, fix=fix)
