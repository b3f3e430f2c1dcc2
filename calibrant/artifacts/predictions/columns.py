"""Names and types of the columns of a predictions file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def fixed_list(values: NDArray[np.floating[Any]]) -> Any:
    import pyarrow as pa

    flat = pa.array(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def group_column(name: str) -> str:
    return name if name == "group" else f"group_{name}"


def is_group(column: str) -> bool:
    return column == "group" or column.startswith("group_")
