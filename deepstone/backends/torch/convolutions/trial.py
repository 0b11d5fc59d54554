"""Prepares one pass of a layer's convolution for the lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from deepstone.algorithms.problem import PASSES, Pass, Problem
from deepstone.backends.base import Backend, ConvolutionTrial, Unsupported
from deepstone.backends.torch.convolutions.cpu import CpuTrial
from deepstone.backends.torch.convolutions.gpu import GpuTrial, free_device_bytes, open_cudnn
from deepstone.backends.torch.convolutions.operands import Operands
from deepstone.backends.torch.settings import Settings
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Conv
from deepstone.setups.axes import AUTO

_opened = cache(open_cudnn)  # making a handle takes a second, and one serves all


def convolution_trial(
    graph: Graph,
    name: str,
    direction: str,
    weights: Mapping[str, Any],
    request: Mapping[str, Any],
    settings: Settings,
    timing: Backend,
) -> ConvolutionTrial:
    layer = graph.layer(name)
    chosen = _pass(direction)
    if not isinstance(layer.op, Conv):
        raise Unsupported(f"layer {name} is no convolution")
    torch.manual_seed(int(request["seed"]))
    dtype = settings.autocast or settings.weights
    precision = _precision(str(request["precision"]), dtype, settings.device)
    operands = Operands.drawn(
        Problem.of_layer(graph, layer, int(request["batch"])),
        torch.tensor(weights["weight"]),
        device=settings.device,
        dtype=dtype,
        channels_last=settings.channels_last,
    )
    setup = {
        "device": "cpu" if settings.device.type == "cpu" else f"gpu:{settings.device.index}",
        "precision": precision,
        "layout": "nhwc" if settings.channels_last else "nchw",
    }
    if settings.device.type == "cpu":
        return CpuTrial(operands, chosen).trial(setup, timing)
    wait: Callable[[], None] = timing.synchronize
    gpu = GpuTrial(_opened(), operands, chosen, precision, free_bytes=free_device_bytes, wait=wait)
    return gpu.trial(setup, timing)


def _pass(direction: str) -> Pass:
    return next(each for each in PASSES if each == direction)


def _precision(asked: str, dtype: torch.dtype, device: torch.device) -> str:
    """Return the name of the precision in results; torch's default for convolutions on a GPU is TF32."""
    narrow = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}.get(dtype)
    if narrow:
        return narrow
    tf32 = device.type == "cuda" and asked in (AUTO, "tf32", "tf32-conv")
    return "tf32" if tf32 else "fp32"
