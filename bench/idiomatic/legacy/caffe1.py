"""alexnet-owt as one trained it in Caffe 1.0: a net and a solver in prototxt. No code of Deepstone. Syntax of 3.6."""

import os
import tempfile
from typing import Any, Callable, Dict, List, Tuple

import caffe

SOLVER = """
base_lr: 0.0001
lr_policy: "fixed"
momentum: 0.9
type: "SGD"
solver_mode: CPU
display: 0
random_seed: 0
net_param { name: "alexnet-owt" %s }
"""

INPUTS = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: %d dim: 3 dim: 224 dim: 224 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: %d } } }
"""

CONVOLUTION = """
layer { name: "%(name)s" type: "Convolution" bottom: "%(bottom)s" top: "%(name)s"
  convolution_param { num_output: %(outputs)d kernel_size: %(kernel)d stride: %(stride)d pad: %(pad)d } }
"""

POOL = """
layer { name: "%(name)s" type: "Pooling" bottom: "%(bottom)s" top: "%(name)s"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
"""

DENSE = """
layer { name: "%(name)s" type: "InnerProduct" bottom: "%(bottom)s" top: "%(name)s"
  inner_product_param { num_output: %(outputs)d } }
"""

RELU = 'layer { name: "relu%(number)s" type: "ReLU" bottom: "%(name)s" top: "%(name)s" }\n'

LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc8" bottom: "label" top: "loss" }\n'


def alexnet_owt(batch: int) -> str:
    convolutions = ((64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
    text: List[str] = [INPUTS % (batch, batch)]
    bottom = "data"
    for number, (outputs, kernel, stride, pad) in enumerate(convolutions, 1):
        name = "conv%d" % number
        shape = {"outputs": outputs, "kernel": kernel, "stride": stride, "pad": pad}
        text.append(CONVOLUTION % dict(shape, name=name, bottom=bottom))
        text.append(RELU % {"number": number, "name": name})
        bottom = name
        if number in (1, 2, 5):
            bottom = "pool%d" % number
            text.append(POOL % {"name": bottom, "bottom": name})
    for number, outputs in ((6, 4096), (7, 4096), (8, 1000)):
        name = "fc%d" % number
        text.append(DENSE % {"name": name, "bottom": bottom, "outputs": outputs})
        if number < 8:
            text.append(RELU % {"number": number, "name": name})
        bottom = name
    return "".join(text) + LOSS


def make(
    weights: Dict[str, Dict[str, Any]], images: Any, labels: Any, threads: int
) -> Tuple[Callable[[], None], Callable[[], None], Callable[[], float]]:
    """One training step; what waits for it; and the loss of the last one. Threads are those of BLAS."""
    caffe.set_mode_cpu()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "solver.prototxt")
        with open(path, "w") as file:
            file.write(SOLVER % alexnet_owt(len(images)))
        solver = caffe.SGDSolver(path)
    net = solver.net
    for name, given in weights.items():
        net.params[name][0].data[...] = given["weight"]
        net.params[name][1].data[...] = given["bias"]
    net.blobs["data"].data[...] = images
    net.blobs["label"].data[...] = labels
    return lambda: solver.step(1), lambda: None, lambda: float(net.blobs["loss"].data)
