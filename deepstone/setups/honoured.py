"""The values that frameworks take of an axis that they honour, where that is not every value. Data only.

In the syntax of Python 3.6: the controller refuses other values by these tables before a process starts, and the
backends of legacy frameworks do so once more in the worker.
"""

from typing import Any, Dict, Mapping, Sequence

Honoured = Mapping[str, Sequence[Any]]

# Most frameworks that run on the CPU only.
ON_CPU: Dict[str, Sequence[Any]] = {
    "device": ("auto", "cpu"),
    "precision": ("auto", "fp32", "fp64"),
    "layout": ("auto", "nchw"),
    "engine": ("auto", "native"),
    "optimizer": ("momentum", "sgd", "adam"),
    "input": ("resident", "host"),
}

# A legacy version runs on a backend of its own, which trains in one process and at once.
_ALONE: Dict[str, Sequence[Any]] = {
    "processes": ("auto", 1),
    "nodes": (1,),
    "accumulate": (1,),
    "wait": ("auto",),
    "power_limit": ("auto",),
}

# The first major version of a framework that its current backend runs; versions before it are legacy.
FIRST_MAJOR = {"torch": 2, "tensorflow": 2}

HONOURED: Dict[str, Honoured] = {
    "paddle": ON_CPU,
    "theano": ON_CPU,
    "cntk": ON_CPU,
    "mxnet": dict(ON_CPU, engine=("auto", "onednn")),  # its convolutions take nhwc on GPUs only
    "chainer": dict(ON_CPU, engine=("auto", "onednn", "native")),  # onednn where iDeep is installed
    "caffe": dict(ON_CPU, precision=("auto", "fp32")),  # its Python interface has no other
    "onnxruntime": {
        "device": ("auto", "cpu"),
        "precision": ("auto", "fp32"),  # on the CPU it has no convolution and no average pool of another type
        "layout": ("auto", "nchw"),  # that of ONNX itself
        "engine": ("auto", "native"),
        "input": ("resident", "host"),
    },
    # The wheel of torch 1.1 contains CUDA 9.0, which no GPU of today runs; channels_last came with 1.5.
    "torch 1": dict(
        ON_CPU,
        engine=("auto", "onednn"),  # MKL-DNN cannot be switched off in 1.1
        algorithm=("auto", "heuristic"),
        compile=("auto", "off"),
        inter_threads=("auto", 1),
        isa=("auto",),  # MKL-DNN 0.18 has no limit that could be set
        checkpointing=("off",),
        **_ALONE,
    ),
    "tensorflow 1": dict(
        ON_CPU,
        layout=("auto", "nhwc"),  # the stock builds have no convolution in nchw for CPUs
        engine=("auto", "onednn", "native"),  # what the build calls
        algorithm=("auto", "heuristic"),
        compile=("auto", "graph"),
        isa=("auto",),
        checkpointing=("off",),
        **_ALONE,
    ),
}
