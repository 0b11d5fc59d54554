"""alexnet-owt as one trained it in TensorFlow 1.x. No code of Deepstone. In the syntax of Python 3.6.

`tf.layers`, channels last, one session. "SAME" pads where it is the network's padding; conv1 pads by itself.
"""

from typing import Any, Callable, Dict, Tuple

import numpy as np
import tensorflow

tf: Any = tensorflow


def alexnet_owt(x: Any) -> Any:
    relu = tf.nn.relu
    x = tf.pad(x, [[0, 0], [2, 2], [2, 2], [0, 0]])
    x = tf.layers.conv2d(x, 64, 11, strides=4, padding="valid", activation=relu, name="conv1")
    x = tf.layers.max_pooling2d(x, 3, 2)
    x = tf.layers.conv2d(x, 192, 5, padding="same", activation=relu, name="conv2")
    x = tf.layers.max_pooling2d(x, 3, 2)
    x = tf.layers.conv2d(x, 384, 3, padding="same", activation=relu, name="conv3")
    x = tf.layers.conv2d(x, 256, 3, padding="same", activation=relu, name="conv4")
    x = tf.layers.conv2d(x, 256, 3, padding="same", activation=relu, name="conv5")
    x = tf.layers.max_pooling2d(x, 3, 2)
    x = tf.reshape(x, [-1, 6 * 6 * 256])
    x = tf.layers.dense(x, 4096, activation=relu, name="fc6")
    x = tf.layers.dense(x, 4096, activation=relu, name="fc7")
    return tf.layers.dense(x, 1000, name="fc8")


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one."""
    with tf.Graph().as_default():
        x = tf.get_variable("images", (len(images), 224, 224, 3), trainable=False)
        y = tf.get_variable("labels", (len(images),), tf.int64, tf.zeros_initializer(), trainable=False)
        loss = tf.losses.sparse_softmax_cross_entropy(y, alexnet_owt(x))
        train = tf.train.MomentumOptimizer(1e-4, 0.9).minimize(loss)
        session = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=threads))
        session.run(tf.global_variables_initializer())
        x.load(images.transpose(0, 2, 3, 1), session)
        y.load(labels, session)
        for variable in tf.trainable_variables():
            layer, kind = variable.op.name.split("/")
            given = weights[layer]["weight" if kind == "kernel" else "bias"]
            variable.load(in_own_order(layer, given), session)
    last = [0.0]

    def step() -> None:
        _, last[0] = session.run([train, loss])

    return step, lambda: None, lambda: float(last[0])


def in_own_order(layer: str, given: Any) -> Any:
    """Kernels end with input and output channels, dense weights with outputs, and flattened channels come last."""
    if given.ndim == 4:
        return given.transpose(2, 3, 1, 0)
    if layer == "fc6" and given.ndim == 2:
        return np.reshape(given, (4096, 256, 6, 6)).transpose(2, 3, 1, 0).reshape(9216, 4096)
    return given.T
