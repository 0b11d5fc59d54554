"""In a worker before anything else: makes the framework drop options in silence, as a bug or an unread variable would.

DEEPSTONE_TEST_DROP names the framework. The backend under test is the real one; only what it calls does nothing.
"""

import importlib.abc
import importlib.machinery
import os
import sys

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "ATEN_CPU_CAPABILITY",
    "TF_ENABLE_ONEDNN_OPTS",
    "NPROC",
    "PJRT_NPROC",
)


def nothing(*_given, **_named):
    return None


def without(function, *names):
    """The same function, deaf to these arguments."""
    return lambda *given, **named: function(*given, **{key: value for key, value in named.items() if key not in names})


def drop_in_torch():
    import torch
    from torch import nn

    torch.autocast.__enter__ = torch.autocast.__exit__ = nothing
    torch.set_num_threads = torch.set_num_interop_threads = torch.use_deterministic_algorithms = nothing
    torch.compile = lambda network, **_named: network
    torch.backends.mkldnn.set_flags = nothing
    cudnn = type(torch.backends.cudnn)
    cudnn.benchmark = property(lambda _module: False, nothing)
    cudnn.enabled = property(lambda _module: True, nothing)
    nn.Module.to = without(nn.Module.to, "memory_format", "dtype")
    torch.Tensor.to = without(torch.Tensor.to, "memory_format", "dtype")


def drop_in_tensorflow():
    import tensorflow as tf

    tf.bfloat16 = tf.float32
    tf.config.threading.set_intra_op_parallelism_threads = nothing
    tf.config.threading.set_inter_op_parallelism_threads = nothing
    tf.config.experimental.enable_op_determinism = nothing
    function, convolve = tf.function, tf.nn.conv2d

    class Unrecorded:
        def __init__(self, body):
            self._body = body

        def get_concrete_function(self, *_given):
            return self._body

    def neither_compiled_nor_recorded(body, *, jit_compile, autograph):
        """A program that is to be compiled is recorded only, and one that is to be recorded runs eagerly."""
        return function(body, autograph=autograph) if jit_compile else Unrecorded(body)

    def channels_last_always(x, weight, stride, padding, data_format, dilation=None):
        if data_format == "NHWC":
            return convolve(x, weight, stride, padding, data_format, dilation)
        images = tf.transpose(x, (0, 2, 3, 1))
        around = padding if isinstance(padding, str) else [padding[side] for side in (0, 2, 3, 1)]
        return tf.transpose(convolve(images, weight, stride, around, "NHWC", dilation), (0, 3, 1, 2))

    tf.function = neither_compiled_nor_recorded
    tf.nn.conv2d = channels_last_always


def drop_in_jax():
    import jax
    import jax.numpy as jnp
    from jax import lax

    jnp.bfloat16 = jnp.float64 = jnp.float32
    jit, convolve = jax.jit, lax.conv_general_dilated

    class Uncompiled:
        """Runs one operation after the other, and has the text of the program that it should have been."""

        def __init__(self, function):
            self._function = function

        def lower(self, *arguments):
            self._text = jit(self._function).lower(*arguments).as_text()
            return self

        def compile(self, **_named):
            return self

        def as_text(self):
            return self._text

        memory_analysis = nothing

        def __call__(self, *arguments):
            return self._function(*arguments)

    def channels_last_always(x, weight, *, dimension_numbers, precision, **named):
        """Deaf to `precision`, too, which says whether a GPU may take TF32."""
        if dimension_numbers[0] == "NHWC":
            return convolve(x, weight, dimension_numbers=dimension_numbers, **named)
        x, weight = x.transpose(0, 2, 3, 1), weight.transpose(2, 3, 1, 0)
        return convolve(x, weight, dimension_numbers=("NHWC", "HWIO", "NHWC"), **named).transpose(0, 3, 1, 2)

    jax.jit = lambda function, **_named: Uncompiled(function)
    lax.conv_general_dilated = channels_last_always


def drop_in_mxnet():
    """How many threads there are, variables should have told."""
    import mxnet

    for name in ("array", "zeros", "ones", "full"):
        setattr(mxnet.nd, name, without(getattr(mxnet.nd, name), "dtype"))


def drop_in_chainer():
    import numpy as np

    np.float64 = np.float32


class Dropping(importlib.abc.MetaPathFinder):
    """The first module of ours that a worker imports is the moment."""

    def find_spec(self, name, path, target=None):
        if name == "deepstone.backends.base":
            sys.meta_path.remove(self)
            globals()["drop_in_" + os.environ["DEEPSTONE_TEST_DROP"]]()
        return


if os.environ.get("DEEPSTONE_TEST_DROP"):
    for variable in VARIABLES:
        os.environ.pop(variable, None)
    os.sched_setaffinity = nothing
    sys.meta_path.insert(0, Dropping())
