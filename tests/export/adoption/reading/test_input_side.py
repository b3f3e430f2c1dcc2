"""Layout, size and type of a foreign input, and pictures on their way to it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from calibrant.errors import ConfigError, ModelError
from calibrant.export.adoption.preprocess.declared import Flags
from calibrant.export.adoption.reading.input_side import read_input
from calibrant.export.checks.parity import session

from ..conftest import SIZE, Foreigners, Maker

COLOURS = Flags(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def plain(m: Maker) -> str:
    return m.head(m.body())


def channels_last(m: Maker) -> str:
    return m.head(m.body(m.put("Transpose", "input", perm=[0, 3, 1, 2])))


def bytes_inside(m: Maker) -> str:
    x = m.put("Cast", m.put("Transpose", "input", perm=[0, 3, 1, 2]), to=TensorProto.FLOAT)
    return m.head(m.body(m.put("Div", x, m.weight(255.0))))


def test_channels_last_is_seen_from_the_shape(foreigners: Foreigners) -> None:
    path = foreigners.write(channels_last, shape=("n", SIZE, SIZE, 3))
    done = foreigners.adopt(path, flags=COLOURS)
    assert done.found.taken.layout == "NHWC"
    assert done.proof.passed


@pytest.mark.parametrize(("build", "layout"), [(plain, "NCHW"), (channels_last, "NHWC")])
def test_with_every_axis_free_the_first_operator_says_the_layout(
    build: object, layout: str, foreigners: Foreigners
) -> None:
    path = foreigners.write(build, shape=("batch", "a", "b", "c"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="leaves the size of its pictures open; say it: --size"):
        foreigners.adopt(path)
    done = foreigners.adopt(path, size=(SIZE, SIZE))
    assert done.found.taken.layout == layout
    assert done.card.preprocessing.size == (SIZE, SIZE)


def test_a_size_that_the_graph_does_not_take(foreigners: Foreigners) -> None:
    with pytest.raises(ModelError, match="--size: takes 16 x 16 pictures, asked for 32 x 32"):
        foreigners.adopt(foreigners.write(plain), size=(32, 32))


def test_bytes_are_not_scaled_twice(foreigners: Foreigners) -> None:
    path = foreigners.write(bytes_inside, shape=("n", SIZE, SIZE, 3), elem=TensorProto.UINT8)
    done = foreigners.adopt(path)
    ops = [n.op_type for n in onnx.load(str(foreigners.adopted)).graph.node]
    assert done.found.taken.scaled_inside
    assert ops.count("Mul") == 0
    assert done.proof.passed


@pytest.mark.parametrize("shape", [("n", 1, SIZE, SIZE), ("n", 4, SIZE, SIZE), ("n", 5, 7, 9)])
def test_pictures_have_three_channels(shape: tuple[str | int, ...], foreigners: Foreigners) -> None:
    def grey(m: Maker) -> str:
        w = m.weight(m.rng.normal(0, 1, (8, int(shape[1]), 3, 3)))
        return m.head(m.put("Flatten", m.put("GlobalAveragePool", m.put("Conv", "input", w)), axis=1))

    with pytest.raises(ModelError, match="pictures need three channels"):
        foreigners.adopt(foreigners.write(grey, shape=shape))


@pytest.mark.parametrize("bgr", [False, True])
def test_the_prologue_is_the_arithmetic_by_hand(bgr: bool, foreigners: Foreigners) -> None:
    """x = (byte / 255 - mean) / std of each channel, blue first where the network wants it so."""
    flags = Flags(COLOURS.mean, COLOURS.std, colour="bgr" if bgr else None)

    def passes(m: Maker) -> str:  # five numbers of the picture's own first corner
        corner = m.put("Slice", "input", *(m.weight(v, dtype=np.int64) for v in ([0, 0], [1, 2], [2, 3])))
        flat = m.put("Flatten", corner, axis=1)
        return m.put("Concat", flat, m.put("Slice", flat, *(m.weight(v, dtype=np.int64) for v in ([0], [2], [1]))),
                     axis=1)  # fmt: skip

    path = foreigners.write(passes, shape=("n", 3, 1, 1))
    foreigners.adopt(path, flags=flags)
    pixels = np.array([[[[10, 100, 250]]], [[[0, 7, 255]]]], np.uint8)
    got = session(foreigners.adopted).run(["logits"], {"images": pixels})[0]
    by_hand = (pixels[:, 0, 0] / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.3]
    by_hand = by_hand[:, ::-1] if bgr else by_hand
    np.testing.assert_allclose(got, np.hstack([by_hand, by_hand[:, :2]]), atol=2e-6)


def test_text_is_no_picture(foreigners: Foreigners) -> None:
    path = foreigners.write(lambda m: m.head(m.body(m.put("Cast", "input", to=1))), elem=TensorProto.INT64)
    with pytest.raises(ModelError, match="is int64, expected float32, float16 or uint8 pictures"):
        read_input(onnx.load(str(path)))
