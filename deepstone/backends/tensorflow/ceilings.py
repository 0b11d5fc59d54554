"""Programs that use one resource of a device up to its ceiling: a matrix product, or a pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from deepstone.backends.base import Unsupported

_TYPES = {
    "fp32": tf.float32,
    "tf32": tf.float32,
    "bf16": tf.bfloat16,
    "fp16": tf.float16,
    "fp64": tf.float64,
}


def ceiling_program(wanted: Mapping[str, Any]) -> Callable[[], None]:
    """Return the program, on the device of the current context."""
    if wanted["kind"] == "product":
        precision, size = str(wanted["precision"]), int(wanted["size"])
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
        a, b = (tf.cast(tf.random.normal((size, size)), _TYPES[precision]) for _ in range(2))
        return lambda: tf.linalg.matmul(a, b)
    if wanted["kind"] == "copy":  # TensorFlow passes on a tensor instead of copying it, so each value changes its sign
        values = tf.random.normal((int(wanted["bytes"]) // 4,))
        return lambda: tf.negative(values)
    raise Unsupported(f"TensorFlow backend: no ceiling of the kind {wanted['kind']!r}")
