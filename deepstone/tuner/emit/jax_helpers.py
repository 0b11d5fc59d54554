"""The functions that networks in JAX are made of, as they are printed.

A line that ends in `#! NCHW`, `#! CPU` or so is for that layout or device only (POINT, GROUPS: for networks that have
1 x 1 convolutions, or some in a few groups, on a CPU); what stands in ⟨ ⟩, for activations in bf16: sums over many
values are in fp32. With channels last, `along_channels` is not needed.
"""

from __future__ import annotations

from typing import Final

HELPERS: Final = {
    "pair": '''def pair(sides):
    """(rows, columns); one number is both."""
    return (sides, sides) if isinstance(sides, int) else sides
''',
    "edges": '''def edges(padding):
    """(top, bottom), (left, right) of one number, of (rows, columns), or of all four."""
    if isinstance(padding, int) or len(padding) == 2:
        rows, columns = pair(padding)
        return (rows, rows), (columns, columns)
    return padding[:2], padding[2:]
''',
    "init_conv": """def init_conv(rng, inputs, channels, kernel, groups=1, bias=True):
    rows, columns = pair(kernel)
    shape = (channels, inputs // groups, rows, columns)  #! NCHW
    shape = (rows, columns, inputs // groups, channels)  #! NHWC
    scale = np.sqrt(2 / (inputs // groups * rows * columns))
    params = {"weight": scale.astype(np.float32) * rng.standard_normal(shape, np.float32)}
    return {**params, "bias": np.zeros(channels, np.float32)} if bias else params
""",
    "init_dense": """def init_dense(rng, inputs, features, bias=True):
    scale = np.sqrt(2 / inputs).astype(np.float32)
    params = {"weight": scale * rng.standard_normal((inputs, features), np.float32)}
    return {**params, "bias": np.zeros(features, np.float32)} if bias else params
""",
    "init_norm": """def init_norm(channels):
    return {"scale": np.ones(channels, np.float32), "offset": np.zeros(channels, np.float32)}
""",
    "initial_statistics": '''def initial_statistics(params):
    """A running mean of 0 and a variance of 1 for each batch norm of a network."""
    if isinstance(params, list):
        return [initial_statistics(each) for each in params]
    if "scale" in params:
        shape = params["scale"].shape
        return {"mean": np.zeros(shape, np.float32), "var": np.ones(shape, np.float32)}
    inner = {name: initial_statistics(each) for name, each in params.items() if isinstance(each, dict | list)}
    return {name: each for name, each in inner.items() if each}
''',
    "stacked": '''def stacked(blocks):
    """The parameters of equal blocks in one tree, for lax.scan: a program of so many layers would compile for long."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *blocks)
''',
    "conv": """def conv(params, x, stride=1, padding=0, dilation=1, groups=1):
    weight = params["weight"]⟨.astype(x.dtype)⟩
    stride, dilation = pair(stride), pair(dilation)
    if weight.shape[:2] == (1, 1) and padding == 0 and groups == 1:  # a product: XLA's gradient is faster  #! POINT
        return plus_bias(params, x[:, :: stride[0], :: stride[1]] @ weight[0, 0])  #! POINT
    if 1 < groups <= 4:  # XLA's gradient of a few groups is faster apart  #! GROUPS
        parts = zip(jnp.split(x, groups, 1), jnp.split(weight, groups, 0))  #! GROUPS NCHW
        parts = zip(jnp.split(x, groups, 3), jnp.split(weight, groups, 3))  #! GROUPS NHWC
        outputs = [conv({"weight": own}, part, stride, padding, dilation) for part, own in parts]  #! GROUPS
        return plus_bias(params, jnp.concatenate(outputs, 1))  #! GROUPS NCHW
        return plus_bias(params, jnp.concatenate(outputs, 3))  #! GROUPS NHWC
    x = lax.conv_general_dilated(
        x,
        weight,
        stride,
        edges(padding),
        rhs_dilation=dilation,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),  #! NCHW
        dimension_numbers=("NHWC", "HWIO", "NHWC"),  #! NHWC
        feature_group_count=groups,
    )
    return plus_bias(params, x)
""",
    "plus_bias": """def plus_bias(params, x):
    if "bias" not in params:
        return x
    return (x⟨.astype(jnp.float32)⟩ + params["bias"]⟨.astype(jnp.float32)⟩)⟨.astype(x.dtype)⟩  #! NHWC
    bias = params["bias"][:, None, None]  #! NCHW
    return (x⟨.astype(jnp.float32)⟩ + bias⟨.astype(jnp.float32)⟩)⟨.astype(x.dtype)⟩  #! NCHW
""",
    "block_conv": '''def block_conv(params, x, side, image_pad, kernel_pad):
    """A strided convolution that takes blocks of pixels as channels: the same sums, without a stride."""
    top, bottom, left, right = image_pad
    images = pad(x, (top, bottom, 0), (left, right, 0))
    below, beside = kernel_pad
    kernels = params["weight"]⟨.astype(x.dtype)⟩
    kernels = jnp.pad(kernels, ((0, 0), (0, 0), (0, below), (0, beside)))  #! NCHW
    kernels = jnp.pad(kernels, ((0, below), (0, beside), (0, 0), (0, 0)))  #! NHWC
    outputs = lax.conv_general_dilated(
        to_depth(images, side),
        to_depth(kernels, side),  #! NCHW
        to_depth(kernels.transpose(3, 0, 1, 2), side).transpose(1, 2, 3, 0),  #! NHWC
        (1, 1),
        "VALID",
        dimension_numbers=("NCHW", "OIHW", "NCHW"),  #! NCHW
        dimension_numbers=("NHWC", "HWIO", "NHWC"),  #! NHWC
    )
    return plus_bias(params, outputs)
''',
    "to_depth": '''def to_depth(x, side):
    """Blocks of pixels become channels."""
    n, c, h, w = x.shape  #! NCHW
    x = x.reshape(n, c, h // side, side, w // side, side).transpose(0, 1, 3, 5, 2, 4)  #! NCHW
    return x.reshape(n, c * side * side, h // side, w // side)  #! NCHW
    n, h, w, c = x.shape  #! NHWC
    x = x.reshape(n, h // side, side, w // side, side, c).transpose(0, 1, 3, 5, 2, 4)  #! NHWC
    return x.reshape(n, h // side, w // side, c * side * side)  #! NHWC
''',
    "dense": """def dense(params, x):
    x = x @ params["weight"]⟨.astype(x.dtype)⟩
    if "bias" not in params:
        return x
    return (x⟨.astype(jnp.float32)⟩ + params["bias"]⟨.astype(jnp.float32)⟩)⟨.astype(x.dtype)⟩
""",
    "channels": '''def along_channels(values):
    """One value per channel, to be used with images."""
    return values[:, None, None]
''',
    "batch_norm": '''def batch_norm(params, stats, x, epsilon=1e-5, momentum=0.1):
    """Gives also the running mean and variance; `momentum` is the share of the new batch in them."""
    scale, offset = params["scale"]⟨.astype(jnp.float32)⟩, params["offset"]⟨.astype(jnp.float32)⟩
    y, mean, var = normalized(x⟨.astype(jnp.float32)⟩, scale, offset, epsilon)
    count = x.size // scale.size
    new = {"mean": mean, "var": var * (count / (count - 1))}
    after = {name: (1 - momentum) * stats[name] + momentum * new[name] for name in new}
    return y⟨.astype(x.dtype)⟩, after
''',
    "normalized": '''@partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalized(x, scale, offset, epsilon):
    """Its gradient is written out: derived by JAX, it reads and keeps more than it needs."""
    axes = (0, 2, 3)  #! NCHW
    axes = (0, 1, 2)  #! NHWC
    mean = x.mean(axes)  #! CPU
    var = jnp.square(x - along_channels(mean)).mean(axes)  #! CPU
    first = x[0, :, 0, 0]  # near the mean, so that the squares lose no digits; XLA reads the batch once  #! GPU NCHW
    first = x[0, 0, 0]  # near the mean, so that the squares lose no digits; XLA reads the batch once  #! GPU NHWC
    moved = x - along_channels(first)  #! GPU
    mean = moved.mean(axes)  #! GPU
    var = jnp.maximum(jnp.square(moved).mean(axes) - jnp.square(mean), 0)  #! GPU
    mean = mean + first  #! GPU
    factor = scale * lax.rsqrt(var + epsilon)
    return (x - along_channels(mean)) * along_channels(factor) + along_channels(offset), mean, var


def normalized_forward(x, scale, offset, epsilon):
    y, mean, var = normalized(x, scale, offset, epsilon)
    return (y, mean, var), (x, scale, mean, lax.rsqrt(var + epsilon))


def normalized_backward(epsilon, saved, upstream):
    x, scale, mean, inverse = saved
    g = upstream[0]
    axes = (0, 2, 3)  #! NCHW
    axes = (0, 1, 2)  #! NHWC
    centred, count = x - along_channels(mean), x.size // scale.size
    of_offset, of_scale = g.sum(axes), (g * centred).sum(axes) * inverse
    pulled = g - along_channels(of_offset / count) - centred * along_channels(of_scale * inverse / count)
    return pulled * along_channels(scale * inverse), of_scale, of_offset


normalized.defvjp(normalized_forward, normalized_backward)
''',
    "pad": '''def pad(x, rows, columns, fill=0.0):
    """Each side: before, after, and between two pixels."""
    none = (0, 0, 0)
    return lax.pad(x, jnp.asarray(fill, x.dtype), (none, none, rows, columns))  #! NCHW
    return lax.pad(x, jnp.asarray(fill, x.dtype), (none, rows, columns, none))  #! NHWC
''',
    "spans": '''def spans(x, kernel, stride, padding, ceil_mode):
    """Of rows and of columns: pixels, what of the padding windows reach before and after them, how many windows."""
    found = []
    sizes = x.shape[2:]  #! NCHW
    sizes = x.shape[1:3]  #! NHWC
    for size, width, step, (before, after) in zip(sizes, kernel, stride, edges(padding)):
        room = size + before + after - width
        count = (-(-room // step) if ceil_mode else room // step) + 1
        if ceil_mode and (count - 1) * step >= size + before:  # it would begin beyond the image
            count -= 1
        found.append((size, before, max(0, (count - 1) * step + width - before - size), count))
    return tuple(found)


def padded(x, sides, fill):
    rows, columns = ((before, after, 0) for _, before, after, _ in sides)
    return pad(x, rows, columns, fill)


def views(x, kernel, stride, sides):
    """For each place in a window: the values that all windows have there."""
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            rows = slice(row, row + (sides[0][3] - 1) * stride[0] + 1, stride[0])
            columns = slice(column, column + (sides[1][3] - 1) * stride[1] + 1, stride[1])
            yield x[:, :, rows, columns]  #! NCHW
            yield x[:, rows, columns]  #! NHWC
''',
    "max_pool": '''def max_pool(x, kernel, stride, padding=0, ceil_mode=False):
    kernel, stride = pair(kernel), pair(stride)
    return largest(x, kernel, stride, spans(x, kernel, stride, padding, ceil_mode))


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def largest(x, kernel, stride, sides):
    """Slices instead of lax.reduce_window, whose gradient is a slow scatter."""
    return largest_forward(x, kernel, stride, sides)[0]


def largest_forward(x, kernel, stride, sides):
    most, winner = None, 0  # which place of a window has it: the first of equals
    for number, seen in enumerate(views(padded(x, sides, -jnp.inf), kernel, stride, sides)):
        if most is None:
            most, winner = seen, jnp.zeros(seen.shape, jnp.uint8 if kernel[0] * kernel[1] <= 256 else jnp.int32)
        else:
            winner = jnp.where(seen > most, jnp.asarray(number, winner.dtype), winner)
            most = jnp.maximum(most, seen)
    return most, winner


def largest_backward(kernel, stride, sides, winner, upstream):
    total = 0
    for number in range(kernel[0] * kernel[1]):
        share = jnp.where(winner == number, upstream, 0)
        around = []
        for place, step, (size, before, _, count) in zip(divmod(number, kernel[1]), stride, sides):
            start = place - before
            around.append((start, size - start - (count - 1) * step - 1, step - 1))
        total = total + pad(share, *around)
    return (total,)


largest.defvjp(largest_forward, largest_backward)
''',
    "average_pool": '''def average_pool(x, kernel, stride, padding=0, ceil_mode=False, count_pad=True):
    """`count_pad`: whether the padding counts; what `ceil_mode` adds beyond it never does."""
    kernel, stride = pair(kernel), pair(stride)
    sides, counted = spans(x, kernel, stride, padding, ceil_mode), []
    for (size, _, _, count), width, step, (before, after) in zip(sides, kernel, stride, edges(padding)):
        starts = np.arange(count) * step
        begin, end = (0, before + size + after) if count_pad else (before, before + size)
        counted.append(np.minimum(starts + width, end) - np.maximum(starts, begin))
    divisor = np.outer(*counted).astype(np.float32)
    sums = sum(views(padded(x⟨.astype(jnp.float32)⟩, sides, 0.0), kernel, stride, sides))
    return (sums / divisor)⟨.astype(x.dtype)⟩  #! NCHW
    return (sums / divisor[:, :, None])⟨.astype(x.dtype)⟩  #! NHWC
''',
    "neighbour_norm": '''@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4, 5, 6))
def neighbour_norm(x, sums, size, window, alpha, beta, k):
    """x / (k + alpha / window * sums(x²)) ^ beta; its gradient is written out, because JAX's keeps each summand."""
    return neighbour_norm_forward(x, sums, size, window, alpha, beta, k)[0]


def neighbour_norm_forward(x, sums, size, window, alpha, beta, k):
    scale = sums(jnp.square(x), size) * (alpha / window) + k
    return x * inverse_power(scale, beta), (x, scale)


def neighbour_norm_backward(sums, size, window, alpha, beta, k, saved, g):
    x, scale = saved
    factor = inverse_power(scale, beta)
    return (g * factor - (2 * alpha * beta / window) * x * sums(g * x * factor / scale, size),)


neighbour_norm.defvjp(neighbour_norm_forward, neighbour_norm_backward)


def inverse_power(scale, beta):
    if beta != 0.75:
        return scale**-beta
    root = lax.rsqrt(scale)  # without logarithms
    return root * jnp.sqrt(root)
''',
    "local_response_norm": '''def local_response_norm(x, size, alpha, beta, k):
    return neighbour_norm(x⟨.astype(jnp.float32)⟩, channel_sums, size, size, alpha, beta, k)⟨.astype(x.dtype)⟩


def channel_sums(x, size):
    """Over `size` channels around each one."""
    half = size // 2
    wide = jnp.pad(x, ((0, 0), (half, half), (0, 0), (0, 0)))  #! NCHW
    return sum(wide[:, start : start + x.shape[1]] for start in range(size))  #! NCHW
    wide = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (half, half)))  #! NHWC
    return sum(wide[..., start : start + x.shape[3]] for start in range(size))  #! NHWC
''',
    "pixel_response_norm": '''def pixel_response_norm(x, size, alpha, beta, k):
    return neighbour_norm(x⟨.astype(jnp.float32)⟩, pixel_sums, size, size**2, alpha, beta, k)⟨.astype(x.dtype)⟩


def pixel_sums(x, size):
    """Over `size` x `size` pixels around each one."""
    sides = spans(x, (size, size), (1, 1), size // 2, False)
    return sum(views(padded(x, sides, 0.0), (size, size), (1, 1), sides))
''',
    "clip": '''def clip(x, low, high):
    """The gradient of jax.nn.relu6 at its limits is a half."""
    return lax.clamp(jnp.asarray(low, x.dtype), x, jnp.asarray(high, x.dtype))
''',
    "hard_sigmoid": """def hard_sigmoid(x):
    return clip(x, -3.0, 3.0) / 6 + 0.5
""",
    "hard_swish": """def hard_swish(x):
    return x * hard_sigmoid(x)
""",
    "gated": '''def gated(x, gate):
    """In fp32, because the gradient of a gate is a sum over all pixels."""
    return (x.astype(jnp.float32) * gate.astype(jnp.float32)).astype(x.dtype)
''',
    "dropout": """def dropout(x, rate, key):
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)
""",
    "shuffle": """def shuffle(x, groups):
    n, c, h, w = x.shape  #! NCHW
    return x.reshape(n, groups, c // groups, h, w).swapaxes(1, 2).reshape(x.shape)  #! NCHW
    n, h, w, c = x.shape  #! NHWC
    return x.reshape(n, h, w, groups, c // groups).swapaxes(3, 4).reshape(x.shape)  #! NHWC
""",
    "flatten": """def flatten(x):
    return x.reshape(len(x), -1)  #! NCHW
    return x.transpose(0, 3, 1, 2).reshape(len(x), -1)  # as with channels first  #! NHWC
""",
    "cross_entropy": """def cross_entropy(scores, labels):
    log_softmax = jax.nn.log_softmax(scores⟨.astype(jnp.float32)⟩)
    return -jnp.take_along_axis(log_softmax, labels[:, None], axis=1).mean()
""",
}
NEEDS: Final = {
    "edges": ("pair",),
    "init_conv": ("pair",),
    "plus_bias": (),
    "conv": ("pair", "edges", "plus_bias"),
    "block_conv": ("pad", "to_depth", "plus_bias"),
    "normalized": ("channels",),
    "batch_norm": ("normalized",),
    "spans": ("edges", "pad"),
    "max_pool": ("pair", "spans"),
    "average_pool": ("pair", "spans"),
    "local_response_norm": ("neighbour_norm",),
    "pixel_response_norm": ("neighbour_norm", "spans"),
    "hard_sigmoid": ("clip",),
    "hard_swish": ("hard_sigmoid",),
}
