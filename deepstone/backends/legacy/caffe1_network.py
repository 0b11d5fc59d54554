"""Layers of the graph as a network in Caffe's own format. In the syntax of Python 3.6.

Caffe pads both ends of a dimension equally and rounds pools up. If the graph does not, Caffe's layers for joining and
cropping surround the layer.
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from caffe.proto import caffe_pb2

from deepstone.backends.wire_graph import LOSS, WireGraph, WireLayer

# Layers whose output their own backward does not read, so that the next layer may write over it.
_OUTPUT_UNREAD = ("conv", "dense", "batch_norm", "max_pool", "add", "concat")
_LOWEST = -float(np.finfo(np.float32).max)
_MAX, _AVERAGE = 0, 1  # numbers of the proto's PoolMethod

_Write = Callable[[WireLayer, str], str]


class Network:
    """Layers as a NetParameter, and the positions of their arrays in it."""

    def __init__(self, graph: WireGraph, batch: int, dropout: bool) -> None:
        self.proto = caffe_pb2.NetParameter()
        self.parameters: Dict[str, Dict[str, Tuple[str, int]]] = {}  # layer -> array -> layer of Caffe, number
        self.norms: Dict[str, str] = {}  # batch norm -> the layer of Caffe that keeps its statistics
        self.losses: Dict[str, float] = {}  # blob -> weight
        self.blobs: Dict[str, str] = {}  # layer -> the blob with its output
        self.owners: Dict[str, str] = {}  # layer of Caffe -> the layer of the graph that it was written for
        self.constants: Dict[str, Any] = {}  # blob -> its content in every step
        self.label = ""
        self._graph = graph
        self._batch = batch
        self._dropout = dropout
        self._names = set(graph.by_name)
        self._table: Dict[str, _Write] = {
            "conv": self._conv,
            "dense": self._dense,
            "batch_norm": self._batch_norm,
            "relu": lambda layer, x: self._add("ReLU", layer.name, [x], self._over(layer, x)).top[0],
            "max_pool": self._pool,
            "average_pool": self._pool,
            "global_pool": self._global_pool,
            "lrn": self._lrn,
            "dropout": self._drop,
            "add": self._join,
            "concat": self._join,
            "flatten": lambda layer, x: self._add("Flatten", layer.name, [x]).top[0],
            LOSS: self._loss,
        }

    @property
    def ops(self) -> List[str]:
        return ["input"] + list(self._table)

    def feed(self, name: str, shape: Sequence[int]) -> str:
        """Add a blob that is filled from outside."""
        layer = self._add("Input", name, [])
        layer.input_param.shape.add().dim.extend(shape)
        return str(layer.top[0])

    def write(self, layer: WireLayer) -> None:
        before = len(self.proto.layer)
        if layer.op == "input":
            self.blobs[layer.name] = self.feed(layer.name, (self._batch,) + layer.output)
        else:
            self.blobs[layer.name] = self._table[layer.op](layer, self.blobs[layer.inputs[0]])
        self.owners.update({written.name: layer.name for written in self.proto.layer[before:]})

    def want(self, source: str) -> None:
        """Request the gradient of a blob that is fed: Caffe computes it if a layer with weights comes before."""
        self._add("Bias", self._fresh(source + "/wanted"), [source], source)

    def want_no_weights(self) -> None:
        for written in self.proto.layer:
            if written.name in self.owners:
                written.param.extend([caffe_pb2.ParamSpec(lr_mult=0)] * len(self.parameters.get(written.name, {})))

    def end_apart(self, layer: WireLayer) -> None:
        """End in a separate blob: a Scale that works in place can run backward only once, because it also overwrites
        the values that it saved."""
        self.blobs[layer.name] = self.proto.layer[-1].top[0] = self._fresh(layer.name + "/apart")

    def _add(self, kind: str, name: str, bottoms: Sequence[str], top: str = "") -> Any:
        return self.proto.layer.add(name=name, type=kind, bottom=bottoms, top=[top or name])

    def _fresh(self, name: str) -> str:
        """Return a name that no layer of the graph has."""
        while name in self._names:
            name += "'"
        self._names.add(name)
        return name

    def _over(self, layer: WireLayer, x: str) -> str:
        """Return the output blob: its input, if no other layer reads that."""
        source = self._graph.by_name[layer.inputs[0]]
        only_reader = self._graph.takers(source.name) == 1
        return x if only_reader and source.op in _OUTPUT_UNREAD else layer.name

    def _conv(self, layer: WireLayer, x: str) -> str:
        has = layer.has
        pad = (has["pad"][0], has["pad"][2])
        if not layer.pad_is_even():
            x, pad = self._padded(layer, x, 0.0), (0, 0)
        written = self._add("Convolution", layer.name, [x])
        into = written.convolution_param
        into.num_output, into.group, into.bias_term = layer.output[0], has["groups"], "bias" in layer.parameters
        into.kernel_h, into.kernel_w = has["kernel"]
        into.stride_h, into.stride_w = has["stride"]
        into.pad_h, into.pad_w = pad
        if has["dilation"] != (1, 1):
            into.dilation.extend(has["dilation"])
        self._takes(layer, layer.name)
        return layer.name

    def _dense(self, layer: WireLayer, x: str) -> str:
        written = self._add("InnerProduct", layer.name, [x])
        written.inner_product_param.num_output = layer.output[0]
        written.inner_product_param.bias_term = "bias" in layer.parameters
        self._takes(layer, layer.name)
        return layer.name

    def _takes(self, layer: WireLayer, written: str) -> None:
        self.parameters[layer.name] = {name: (written, number) for number, name in enumerate(layer.parameters)}

    def _batch_norm(self, layer: WireLayer, x: str) -> str:
        top = self._over(layer, x)
        norm = self._add("BatchNorm", layer.name, [x], top)
        norm.batch_norm_param.eps = layer.has["epsilon"]
        norm.batch_norm_param.moving_average_fraction = 1 - layer.has["momentum"]
        self.norms[layer.name] = layer.name
        scale = self._add("Scale", self._fresh(layer.name + "/scale"), [top], top)
        scale.scale_param.bias_term = True
        self._takes(layer, scale.name)
        return top

    def _pool(self, layer: WireLayer, x: str) -> str:
        has, averages = layer.has, layer.op == "average_pool"
        source = self._graph.shape(layer.inputs[0])
        image, pad = list(source[1:]), (has["pad"][0], has["pad"][2])
        if not layer.pad_is_even():
            x, pad = self._padded(layer, x, 0.0 if averages else _LOWEST), (0, 0)
            image = [image[0] + sum(has["pad"][:2]), image[1] + sum(has["pad"][2:])]
        outside = [_last_start(layer, side, image, pad) >= image[side] for side in (0, 1)]
        if any(outside):  # there Caffe would take the maximum of nothing; so what no other window sees is cut off
            seen = [(layer.output[1 + side] - 1) * has["stride"][side] + has["kernel"][side] for side in (0, 1)]
            image = [seen[side] if outside[side] else image[side] for side in (0, 1)]
            x = self._cropped(layer, x, image, "/seen")
        written = self._add("Pooling", layer.name, [x])
        into = written.pooling_param
        into.pool = _AVERAGE if averages else _MAX
        into.kernel_h, into.kernel_w = has["kernel"]
        into.stride_h, into.stride_w = has["stride"]
        into.pad_h, into.pad_w = pad
        top = layer.name
        if [_windows(layer, side, image, pad) for side in (0, 1)] != list(layer.output[1:]):
            top = self._cropped(layer, top, layer.output[1:], "/kept")
        if averages and any(has["pad"]) and not has["count_pad"]:
            top = self._corrected(layer, top, source)
        return top

    def _corrected(self, layer: WireLayer, x: str, source: Sequence[int]) -> str:
        """Convert Caffe's means over the image and its padding to means over the image."""
        padded = [_places(layer, side, source[1 + side]) for side in (0, 1)]
        shares = self.feed(self._fresh(layer.name + "/shares"), layer.output[1:])
        rows, columns = layer.places_that_count(source)
        self.constants[shares] = np.outer(padded[0], padded[1]) / np.outer(rows, columns)
        scale = self._add("Scale", self._fresh(layer.name + "/mean"), [x, shares])
        scale.scale_param.axis = 2
        return str(scale.top[0])

    def _global_pool(self, layer: WireLayer, x: str) -> str:
        written = self._add("Pooling", layer.name, [x])
        written.pooling_param.pool = _AVERAGE
        written.pooling_param.global_pooling = True
        return layer.name

    def _padded(self, layer: WireLayer, x: str, value: float) -> str:
        """Pad by joining constants to the sides, because Caffe has no layer that pads."""
        channels, height, width = self._graph.shape(layer.inputs[0])
        top, bottom, left, right = layer.has["pad"]
        x = self._between(layer, x, 2, [(channels, rows, width) for rows in (top, bottom)], value)
        height += top + bottom
        return self._between(layer, x, 3, [(channels, height, columns) for columns in (left, right)], value)

    def _between(self, layer: WireLayer, x: str, axis: int, shapes: Sequence[Tuple[int, ...]], value: float) -> str:
        before, after = (self._constant(layer, shape, value) if all(shape) else "" for shape in shapes)
        joined = [blob for blob in (before, x, after) if blob]
        if len(joined) == 1:
            return x
        written = self._add("Concat", self._fresh("%s/padded %d" % (layer.name, axis)), joined)
        written.concat_param.axis = axis
        return str(written.top[0])

    def _constant(self, layer: WireLayer, shape: Sequence[int], value: float) -> str:
        written = self._add("DummyData", self._fresh(layer.name + "/pad"), [])
        written.dummy_data_param.shape.add().dim.extend((self._batch,) + tuple(shape))
        written.dummy_data_param.data_filler.add(type="constant", value=value)
        return str(written.top[0])

    def _cropped(self, layer: WireLayer, x: str, size: Sequence[int], suffix: str) -> str:
        like = self.feed(self._fresh(layer.name + suffix + " size"), (1, 1) + tuple(size))
        written = self._add("Crop", self._fresh(layer.name + suffix), [x, like])
        written.crop_param.axis = 2
        return str(written.top[0])

    def _lrn(self, layer: WireLayer, x: str) -> str:
        has = layer.has
        written = self._add("LRN", layer.name, [x])
        into = written.lrn_param
        into.local_size, into.alpha, into.beta, into.k = has["size"], has["alpha"], has["beta"], has["k"]
        if not has["within_channel"]:
            return layer.name
        into.norm_region = caffe_pb2.LRNParameter.WITHIN_CHANNEL
        if has["k"] == 1:
            return layer.name
        into.alpha /= has["k"]  # within a channel Caffe's k is 1, so it is taken out of the bracket
        power = self._add("Power", self._fresh(layer.name + "/power"), [layer.name])
        power.power_param.scale = has["k"] ** -has["beta"]
        return str(power.top[0])

    def _drop(self, layer: WireLayer, x: str) -> str:
        if not self._dropout:
            return x
        written = self._add("Dropout", layer.name, [x], self._over(layer, x))
        written.dropout_param.dropout_ratio = layer.has["rate"]
        return str(written.top[0])

    def _join(self, layer: WireLayer, x: str) -> str:
        kind = "Eltwise" if layer.op == "add" else "Concat"
        self._add(kind, layer.name, [self.blobs[name] for name in layer.inputs])
        return layer.name

    def _loss(self, layer: WireLayer, x: str) -> str:
        if not self.label:
            self.label = self.feed(self._fresh("label"), (self._batch,))
        written = self._add("SoftmaxWithLoss", layer.name, [x, self.label])
        written.loss_weight.append(layer.has["weight"])
        self.losses[layer.name] = layer.has["weight"]
        return layer.name


def _windows(layer: WireLayer, side: int, image: Sequence[int], pad: Sequence[int]) -> int:
    """Return the number of windows of Caffe's pool along a dimension: rounded up, whatever the graph does."""
    stride = layer.has["stride"][side]
    count = -(-(image[side] + 2 * pad[side] - layer.has["kernel"][side]) // stride) + 1
    return count - 1 if any(pad) and (count - 1) * stride >= image[side] + pad[side] else count


def _last_start(layer: WireLayer, side: int, image: Sequence[int], pad: Sequence[int]) -> int:
    return (_windows(layer, side, image, pad) - 1) * layer.has["stride"][side] - pad[side]


def _places(layer: WireLayer, side: int, size: int) -> List[int]:
    """Return the divisors of Caffe's average along a side: the part of each window inside the image and its padding."""
    kernel, stride, pad = (
        layer.has["kernel"][side],
        layer.has["stride"][side],
        layer.has["pad"][2 * side : 2 * side + 2],
    )
    return [min(kernel, size + sum(pad) - number * stride) for number in range(layer.output[1 + side])]
