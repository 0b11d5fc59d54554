"""The classes and functions that networks in TensorFlow are made of, as they are printed.

A line that ends in tags (`#! NCHW`) is printed where all of them hold:

    NHWC, NCHW          the layout
    LIMITED, FREE       TensorFlow's own CPU kernels, which lack some gradients; XLA or a GPU
    APART, PLAIN        whether it has convolutions with groups or dilation on kernels that lack their gradients;
    DILATED             with dilation
    NARROW, WIDE        activations in bf16, in fp32
    BF16, FP32          weights

What stands in ⟨ ⟩ is for weights in fp32 and activations in bf16.
"""

from __future__ import annotations

from typing import Final

HELPERS: Final = {
    "pair": '''def pair(sides):
    """[rows, columns]; one number is both."""
    return [sides, sides] if isinstance(sides, int) else list(sides)
''',
    "he_normal": '''def he_normal(shape, inputs):
    """First weights, as He et al. 2015 have them."""
    values = tf.random.normal(shape, stddev=(2 / inputs) ** 0.5)
    return tf.Variable(values)  #! FP32
    return tf.Variable(tf.cast(values, tf.bfloat16))  #! BF16
''',
    "zeros": """def zeros(size):
    return tf.Variable(tf.zeros(size))  #! FP32
    return tf.Variable(tf.zeros(size, tf.bfloat16))  #! BF16
""",
    "around": '''def around(pad):
    """(top, bottom, left, right), as tf.pad and tf.nn.conv2d take it."""
    top, bottom, left, right = pad
    return [[0, 0], [0, 0], [top, bottom], [left, right]]  #! NCHW
    return [[0, 0], [top, bottom], [left, right], [0, 0]]  #! NHWC
''',
    "plus_bias": '''def plus_bias(x, bias, side):  #! WIDE
    return x if bias is None else tf.nn.bias_add(x, bias, side)  #! WIDE
def plus_bias(x, bias, side):  #! NARROW
    return x if bias is None else summed_wide(x, tf.cast(bias, x.dtype), side)  #! NARROW
  #! NARROW
  #! NARROW
def summed_wide(x, bias, side):  #! NARROW
    """The gradient of a bias by a plain sum: on a CPU, that of tf.nn.bias_add adds bf16 in bf16."""  #! NARROW
    axes = [axis for axis in range(len(x.shape)) if axis != (1 if side == "NC..." else len(x.shape) - 1)]  #! NARROW
  #! NARROW
    @tf.custom_gradient  #! NARROW
    def add(x, bias):  #! NARROW
        return tf.nn.bias_add(x, bias, side), lambda g: (g, tf.reduce_sum(g, axes))  #! NARROW
  #! NARROW
    return add(x, bias)  #! NARROW
''',
    "Conv": '''class Conv(tf.Module):
    """A convolution. `padding`: VALID, SAME or (top, bottom, left, right)."""

    def __init__(self, inputs, channels, kernel, stride=1, padding="VALID", dilation=1, groups=1, bias=True):
        super().__init__()
        rows, columns = pair(kernel)
        self.weight = he_normal([rows, columns, inputs // groups, channels], rows * columns * inputs // groups)
        self.bias = zeros(channels) if bias else None
        self.stride, self.dilation, self.groups, self.padding = pair(stride), pair(dilation), groups, padding

    def __call__(self, x):
        weight = ⟨tf.cast(⟩self.weight⟨, x.dtype)⟩
        padding = self.padding if isinstance(self.padding, str) else around(self.padding)  #! FREE
        x = tf.nn.conv2d(x, weight, self.stride, padding, "NCHW", self.dilation)  #! FREE NCHW
        x = tf.nn.conv2d(x, weight, self.stride, padding, "NHWC", self.dilation)  #! FREE NHWC
        padding = self.padding  #! LIMITED
        if not isinstance(padding, str):  # oneDNN has no gradient of explicit padding  #! LIMITED
            x, padding = tf.pad(x, around(padding)), "VALID"  #! LIMITED
        x = tf.nn.conv2d(x, weight, self.stride, padding, "NCHW")  #! PLAIN NCHW
        x = tf.nn.conv2d(x, weight, self.stride, padding)  #! PLAIN NHWC
        if self.groups == 1:  #! APART
            x = self.convolve(x, weight, padding)  #! APART
        else:  # no CPU kernel has the gradient of groups  #! APART
            parts = zip(tf.split(x, self.groups, 1), tf.split(weight, self.groups, 3))  #! APART NCHW
            x = tf.concat([self.convolve(part, own, padding) for part, own in parts], 1)  #! APART NCHW
            parts = zip(tf.split(x, self.groups, 3), tf.split(weight, self.groups, 3))  #! APART NHWC
            x = tf.concat([self.convolve(part, own, padding) for part, own in parts], 3)  #! APART NHWC
        return plus_bias(x, self.bias, "NC...")  #! NCHW
        return plus_bias(x, self.bias, "N...C")  #! NHWC
  #! APART
    def convolve(self, x, weight, padding):  #! APART
        order = "NCHW"  #! APART NCHW
        order = "NHWC"  #! APART NHWC
        if self.dilation != [1, 1]:  # nor that of dilation, so pixels so far apart are gathered  #! DILATED
            x = tf.nn.with_space_to_batch(  #! DILATED
                x,  #! DILATED
                self.dilation,  #! DILATED
                "VALID",  #! DILATED
                lambda x, *_: tf.nn.conv2d(x, weight, 1, "VALID", order),  #! DILATED
                data_format=order,  #! DILATED
            )  #! DILATED
            return x[:, :, :: self.stride[0], :: self.stride[1]]  #! DILATED NCHW
            return x[:, :: self.stride[0], :: self.stride[1]]  #! DILATED NHWC
        return tf.nn.conv2d(x, weight, self.stride, padding, order)  #! APART
''',
    "DepthwiseConv": '''class DepthwiseConv(tf.Module):
    """A convolution of each channel on its own, with so many outputs. `padding` as in Conv."""

    def __init__(self, inputs, outputs, kernel, stride=1, padding="VALID", dilation=1, bias=True):
        super().__init__()
        rows, columns = pair(kernel)
        self.weight = he_normal([rows, columns, inputs, outputs], rows * columns)
        self.bias = zeros(inputs * outputs) if bias else None
        self.stride = [1, 1, *pair(stride)]  #! NCHW
        self.stride = [1, *pair(stride), 1]  #! NHWC
        self.dilation, self.padding = pair(dilation), padding

    def __call__(self, x):
        weight = ⟨tf.cast(⟩self.weight⟨, x.dtype)⟩
        padding = self.padding if isinstance(self.padding, str) else around(self.padding)  #! FREE
        padding = self.padding  #! LIMITED
        if not isinstance(padding, str):  # oneDNN has no gradient of explicit padding  #! LIMITED
            x, padding = tf.pad(x, around(padding)), "VALID"  #! LIMITED
        x = tf.nn.depthwise_conv2d(x, weight, self.stride, padding, "NCHW", self.dilation)  #! NCHW
        x = tf.nn.depthwise_conv2d(x, weight, self.stride, padding, "NHWC", self.dilation)  #! NHWC
        return plus_bias(x, self.bias, "NC...")  #! NCHW
        return plus_bias(x, self.bias, "N...C")  #! NHWC
''',
    "Dense": """class Dense(tf.Module):
    def __init__(self, inputs, features, bias=True):
        super().__init__()
        self.weight = he_normal([inputs, features], inputs)
        self.bias = zeros(features) if bias else None

    def __call__(self, x):
        return plus_bias(x @ ⟨tf.cast(⟩self.weight⟨, x.dtype)⟩, self.bias, "N...C")
""",
    "BatchNorm": '''class BatchNorm(tf.Module):
    """`momentum` is the share of the new batch in the running mean and variance."""

    def __init__(self, channels, epsilon=1e-5, momentum=0.1):
        super().__init__()
        self.scale = tf.Variable(tf.ones(channels))  #! FP32
        self.scale = tf.Variable(tf.ones(channels, tf.bfloat16))  #! BF16
        self.offset = zeros(channels)
        self.mean = tf.Variable(tf.zeros(channels), trainable=False)
        self.variance = tf.Variable(tf.ones(channels), trainable=False)
        self.epsilon, self.momentum = epsilon, momentum

    def __call__(self, x):
        x, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(  # updates both in one kernel
            x=x,
            scale=self.scale,  #! FP32
            scale=tf.cast(self.scale, tf.float32),  #! BF16
            offset=self.offset,  #! FP32
            offset=tf.cast(self.offset, tf.float32),  #! BF16
            mean=self.mean,
            variance=self.variance,
            epsilon=self.epsilon,
            exponential_avg_factor=self.momentum,
            data_format="NCHW",  #! NCHW
            is_training=True,
        )
        self.mean.assign(mean)
        self.variance.assign(variance)
        return x
''',
    "padded_average_pool": '''def padded_average_pool(x, kernel, stride, pad, reached, count_pad):
    """An average pool with (top, bottom, left, right) of padding, of which windows reach another part."""
    mean = tf.nn.avg_pool2d(tf.pad(x, around(reached)), kernel, stride, "VALID", "NCHW")  #! NCHW
    mean = tf.nn.avg_pool2d(tf.pad(x, around(reached)), kernel, stride, "VALID")  #! NHWC
    counted = []
    for axis, width, step, before, after in zip((2, 3), kernel, stride, pad[::2], pad[1::2]):  #! NCHW
    for axis, width, step, before, after in zip((1, 2), kernel, stride, pad[::2], pad[1::2]):  #! NHWC
        starts = np.arange(mean.shape[axis]) * step - before
        begin, end = (-before, x.shape[axis] + after) if count_pad else (0, x.shape[axis])
        counted.append(np.minimum(starts + width, end) - np.maximum(starts, begin))
    share = kernel[0] * kernel[1] / np.outer(*counted)
    return mean * tf.cast(share, x.dtype)  #! NCHW
    return mean * tf.cast(share[:, :, None], x.dtype)  #! NHWC
''',
    "local_response_norm": """def local_response_norm(x, size, alpha, beta, k):
    half = size // 2
    wide = tf.pad(tf.square(x), [[0, 0], [half, half], [0, 0], [0, 0]])  #! NCHW
    sums = tf.add_n([wide[:, start : start + x.shape[1]] for start in range(size)])  #! NCHW
    wide = tf.pad(tf.square(x), [[0, 0], [0, 0], [0, 0], [half, half]])  #! NHWC
    sums = tf.add_n([wide[..., start : start + x.shape[3]] for start in range(size)])  #! NHWC
    return x * tf.pow(k + alpha / size * sums, -beta)
""",
    "pixel_response_norm": '''def pixel_response_norm(x, size, alpha, beta, k):
    """Local response normalization over the pixels around each one."""
    half = size // 2
    squares = tf.pad(tf.square(x), around((half, half, half, half)))
    mean = tf.nn.avg_pool2d(squares, size, 1, "VALID", "NCHW")  #! NCHW
    mean = tf.nn.avg_pool2d(squares, size, 1, "VALID")  #! NHWC
    return x * tf.pow(k + alpha * mean, -beta)
''',
    "clip": '''def clip(x, low, high):
    """tf.clip_by_value lets a gradient through at the limits themselves."""
    return tf.where((x > low) & (x < high), x, tf.stop_gradient(tf.clip_by_value(x, low, high)))
''',
    "hard_sigmoid": """def hard_sigmoid(x):
    return tf.nn.relu6(x + 3.0) / 6.0  #! WIDE
    return tf.cast(tf.nn.relu6(tf.cast(x, tf.float32) + 3.0) / 6.0, x.dtype)  # in bf16, x + 3 rounds  #! NARROW
""",
    "hard_swish": """def hard_swish(x):
    return x * hard_sigmoid(x)
""",
    "shuffle": """def shuffle(x, groups):
    _, c, h, w = x.shape  #! NCHW
    x = tf.transpose(tf.reshape(x, [-1, groups, c // groups, h, w]), [0, 2, 1, 3, 4])  #! NCHW
    return tf.reshape(x, [-1, c, h, w])  #! NCHW
    _, h, w, c = x.shape  #! NHWC
    x = tf.transpose(tf.reshape(x, [-1, h, w, groups, c // groups]), [0, 1, 2, 4, 3])  #! NHWC
    return tf.reshape(x, [-1, h, w, c])  #! NHWC
""",
    "cross_entropy": """def cross_entropy(scores, labels):
    scores = tf.cast(scores, tf.float32)  #! NARROW
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
""",
}
NEEDS: Final = {
    "Conv": ("pair", "he_normal", "zeros", "around", "plus_bias"),
    "DepthwiseConv": ("pair", "he_normal", "zeros", "around", "plus_bias"),
    "Dense": ("he_normal", "zeros", "plus_bias"),
    "BatchNorm": ("zeros",),
    "padded_average_pool": ("around",),
    "pixel_response_norm": ("around",),
    "hard_swish": ("hard_sigmoid",),
}
