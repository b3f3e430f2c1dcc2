"""Files of tensors, whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from calibrant.atomic import replacing


def write_tensors(path: Path, tensors: Mapping[str, Tensor], text: str | None = None) -> None:
    """One .safetensors file, with our JSON in its header where there is some."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata=None if text is None else {"calibrant": text})
        except SafetensorError as error:  # the library hides what the system said, a full disk for one
            code = re.search(r"os error (\d+)|code: (\d+)", str(error))
            if code is None:
                raise
            number = int(code[1] or code[2])
            raise OSError(number, os.strerror(number), str(path)) from None
