"""What is written in the wire format is what the onnx package reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from calibrant.artifacts.onnx_wire import DTYPES, encode_tensor


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_a_tensor_of_each_kind_of_number(dtype: str) -> None:
    values = np.array([[0, 1, 100], [1, 0, 7]]).astype(dtype)
    tensor = onnx.TensorProto.FromString(encode_tensor("w", values))
    read = numpy_helper.to_array(tensor)
    assert (tensor.name, read.dtype, DTYPES[tensor.data_type]) == ("w", values.dtype, values.dtype)
    np.testing.assert_array_equal(read, values)
