"""Foreign files of Keras 3: through tf2onnx, and by Keras' own exporter.

    python bench/foreign/make_keras.py DIR/digits.npz DIR

Needs an environment of its own: tensorflow-cpu and tf2onnx.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tf2onnx

SIZE = 24


def network(last: str, *, scale: float) -> keras.Model:
    image = keras.layers.Input((SIZE, SIZE, 3), name="image")
    x = keras.layers.Rescaling(scale)(image)
    for width in (8, 12):
        x = keras.layers.Conv2D(width, 3, 2, padding="same", activation="relu")(x)
    x = keras.layers.Dropout(0.2)(keras.layers.Flatten()(x))
    return keras.Model(image, keras.layers.Dense(10, activation=last, name="classes")(x))


def main() -> None:
    archive, folder = np.load(sys.argv[1]), Path(sys.argv[2])
    x, y = archive["x_train"].astype(np.float32), archive["y_train"]
    keras.utils.set_random_seed(0)
    levels = network("softmax", scale=1 / 255)  # takes 0..255
    levels.compile(keras.optimizers.AdamW(3e-3), "sparse_categorical_crossentropy")
    levels.fit(x, y, batch_size=50, epochs=40, verbose=0)
    spec = (tf.TensorSpec((None, SIZE, SIZE, 3), tf.float32, name="image"),)
    tf2onnx.convert.from_keras(levels, input_signature=spec, opset=15, output_path=str(folder / "tf2onnx.onnx"))
    keras.utils.set_random_seed(0)
    unit = network("softmax", scale=1.0)  # takes 0..1
    unit.compile(keras.optimizers.AdamW(3e-3), "sparse_categorical_crossentropy")
    unit.fit(x / 255, y, batch_size=50, epochs=40, verbose=0)
    unit.export(str(folder / "keras-export.onnx"), format="onnx", verbose=False)


if __name__ == "__main__":
    main()
