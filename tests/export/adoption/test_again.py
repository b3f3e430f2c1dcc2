from __future__ import annotations

import numpy as np
import onnx
import pytest

from calibrant.errors import DataError, FormatError
from calibrant.export.adoption.again import verify_adopted

from .conftest import Foreigners, Maker


def softmax(m: Maker) -> str:
    return m.put("Softmax", m.head(m.body()), axis=1)


def test_agreement_and_what_it_was_with(foreigners: Foreigners) -> None:
    foreigners.adopt(foreigners.write(softmax))
    report, lines = verify_adopted(foreigners.adopted, None, None)
    assert report["passed"]
    assert report["failure"] is None
    assert "agrees with foreign.onnx" in lines[-1]


def test_the_foreign_file_must_be_there(foreigners: Foreigners) -> None:
    path = foreigners.write(softmax)
    foreigners.adopt(path)
    path.unlink()
    with pytest.raises(DataError, match='"foreign.onnx", the file that it was adopted from, is not beside it'):
        verify_adopted(foreigners.adopted, None, None)


def test_a_changed_body_is_refused_by_its_hash(foreigners: Foreigners) -> None:
    foreigners.adopt(foreigners.write(softmax))
    model = onnx.load(str(foreigners.adopted))
    kernel = next(t for t in model.graph.initializer if len(t.dims) == 4)
    values = np.frombuffer(kernel.raw_data, np.float32).copy() * 1.1
    kernel.raw_data = values.tobytes()
    onnx.save(model, str(foreigners.adopted))
    with pytest.raises(FormatError, match="do not match the hash"):
        verify_adopted(foreigners.adopted, None, None)
