"""Writes models of every kind with an input and what TensorFlow computes: `python FILE FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Write frozen.pb, saved/, net.keras, net.h5, unfrozen.pb, foreign.pb, x.npy and y.npy."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2 as frozen,
    )

    folder = Path(sys.argv[1])
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((16, 16, 3), name="images"),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3, strides=2, padding="same"),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(5, activation="softmax"),
        ]
    )
    x = np.random.default_rng(1).standard_normal((2, 16, 16, 3)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", model(x).numpy())
    model.save(folder / "net.keras")
    model.save(folder / "net.h5")
    model.export(folder / "saved", verbose=False)

    def write(name: str, function: Any) -> None:
        spec = tf.TensorSpec((None, 16, 16, 3), tf.float32, name="x")
        graph = frozen(tf.function(function).get_concrete_function(spec)).graph
        (folder / name).write_bytes(graph.as_graph_def().SerializeToString())

    write("frozen.pb", lambda x: model(x))
    write("foreign.pb", lambda x: tf.math.lgamma(x) + 1.0)
    with tf.Graph().as_default() as graph:
        tf.identity(tf.compat.v1.get_variable("v", (2,), use_resource=False), name="y")
        (folder / "unfrozen.pb").write_bytes(graph.as_graph_def().SerializeToString())


if __name__ == "__main__":
    main()
