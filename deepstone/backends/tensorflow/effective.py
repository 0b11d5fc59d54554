"""The effective value of every axis in TensorFlow, from its running state and from the programs of the first step.

A requested value is never reported as observed: if nothing was observed, the value is reported as set.

A program after TensorFlow's rewriting shows what each operation became. A program that XLA compiled does not, so it is
read as TensorFlow passed it to XLA. Eager operations are observed one by one. oneDNN's log would show more, but
TensorFlow's oneDNN writes it for the whole life of a process or not at all, and then it would slow timed steps.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # pyright: ignore[reportAttributeAccessIssue]
from tensorflow.python.framework import config, op_callbacks  # pyright: ignore[reportAttributeAccessIssue, reportMissingTypeStubs]

from deepstone.backends.base import as_observed, as_set
from deepstone.backends.effective import effective, listed, precision_seen, precisions
from deepstone.backends.tensorflow.isa import widest_isa
from deepstone.backends.tensorflow.settings import Settings, has_tf32

_ONEDNN_PREFIX = "_Mkl"
_MULTIPLYING = ("Conv2D", "MatMul")  # in the names of operations of any library


@dataclass(kw_only=True, slots=True)
class Observed:
    """The observed operations of a program; empty if TensorFlow keeps no such program."""

    operations: dict[str, int] = field(default_factory=dict[str, int])  # name -> how many
    dtypes: set[Any] = field(default_factory=set[Any])  # of convolutions and matrix products
    data_formats: set[str] = field(default_factory=set[str])  # of convolutions
    devices: set[str] = field(default_factory=set[str])
    eager: bool = False  # a convolution or matrix product ran outside of any program

    @property
    def onednn(self) -> bool:
        return any(name.startswith(_ONEDNN_PREFIX) for name in self.operations)


@contextmanager
def observing() -> Generator[Observed, None, None]:
    """Fill an Observed from the programs that run for the first time inside."""
    seen = Observed()

    def see(kind: Any, inputs: Any, attributes: Any, outputs: Any, *_rest: Any, **_named: Any) -> None:
        name = kind.decode() if isinstance(kind, bytes) else str(kind)
        if tf.executing_eagerly() and any(part in name for part in _MULTIPLYING):
            seen.eager = True
            _observe_call(name, inputs, attributes, outputs, seen)

    context.enable_graph_collection()
    op_callbacks.add_op_callback(see)
    try:
        yield seen
        for program in context.export_run_metadata().function_graphs:
            for part in program.partition_graphs:
                _observe_graph(part, seen)
    finally:
        op_callbacks.remove_op_callback(see)
        context.disable_graph_collection()


def _observe_recorded(program: Any, seen: Observed) -> None:
    """Observe the program as recorded, before TensorFlow's own rewriting."""
    for operation in program.graph.get_operations():
        if any(name in operation.type for name in _MULTIPLYING):
            seen.dtypes.add(operation.get_attr("T"))
            if "Conv2D" in operation.type:
                seen.data_formats.add(operation.get_attr("data_format").decode())


def _compiled_by_xla(program: Any) -> bool:
    """Whether TensorFlow must pass the recorded program to XLA; then it fails rather than run it in another way."""
    return bool(program.function_def.attr["_XlaMustCompile"].b)


def _observe_graph(graph: Any, seen: Observed) -> None:
    for node in graph.node:
        seen.operations[node.op] = seen.operations.get(node.op, 0) + 1
        if not any(name in node.op for name in _MULTIPLYING):
            continue
        seen.dtypes.add(tf.as_dtype(node.attr["T"].type))
        seen.devices.add(node.device.rpartition("device:")[2])
        if "Conv2D" in node.op:
            seen.data_formats.add(node.attr["data_format"].s.decode())


def _observe_call(name: str, inputs: Any, attributes: Any, outputs: Any, seen: Observed) -> None:
    """Observe one call. Some inputs are shapes, so the number type is that of the result."""
    seen.dtypes.update(output.dtype for output in outputs)
    seen.devices.update(output.device.rpartition("device:")[2] for output in outputs)
    given = dict(zip(attributes[::2], attributes[1::2], strict=True))
    order = given.get("data_format")
    if "Conv2D" in name and order is not None:
        seen.data_formats.add(order.decode() if isinstance(order, bytes) else str(order))


class Effects:
    """The effective value of every axis. `recorded` is the program of the step, if there is one; `loss` is the last
    step's."""

    def __init__(
        self,
        request: Mapping[str, Any],
        settings: Settings,
        seen: Observed,
        recorded: Any | None,
        parameters: Sequence[Any],
        loss: Any,
    ) -> None:
        self._request = request
        self._settings = settings
        self._observed = seen
        self._parameters = parameters
        self._loss = loss
        self._compile = self._compiled(recorded)
        if self._by_xla:
            _observe_recorded(recorded, seen)

    def of_every_axis(self) -> dict[str, dict[str, Any]]:
        settings = self._settings
        observed = {
            "framework": f"tensorflow@{tf.__version__}",
            "device": self._device(),
            "threads": settings.threads.intra,
            "inter_threads": settings.threads.inter,
        }
        return effective(self._request, {"isa": "not used" if settings.on_gpu else widest_isa()}, observed) | {
            "compile": self._compile,
            "algorithm": self._algorithm(),
            "precision": self._precision(),
            "layout": self._layout(),
            "engine": self._engine(),
        }

    @property
    def _by_xla(self) -> bool:
        return self._compile == as_observed("default")

    def _compiled(self, recorded: Any | None) -> dict[str, Any]:
        if self._observed.eager:
            return as_observed("off")
        if isinstance(recorded, tf.types.experimental.ConcreteFunction):
            if _compiled_by_xla(recorded):
                return as_observed("default")
            if self._observed.operations:
                return as_observed("graph")
        return as_set(self._settings.compile)

    def _device(self) -> str:
        """Return the device. TensorFlow numbers the visible devices, and reports which boards they are."""
        placed = {tensor.device.rpartition("device:")[2] for tensor in (*self._parameters, self._loss)}
        visible = [device.name.rpartition(":")[2] for device in tf.config.get_visible_devices("GPU")]
        names: set[str] = set()
        for name in placed | self._observed.devices:
            kind, _, number = name.partition(":")
            names.add(f"gpu:{visible[int(number)]}" if kind == "GPU" else kind.lower())
        return listed(names)

    def _algorithm(self) -> dict[str, Any]:
        if config.is_op_determinism_enabled():
            return as_observed("deterministic")
        asked = self._settings.algorithm
        # TensorFlow reads from a variable whether to try algorithms, and does not report it.
        return as_observed("heuristic") if asked == "deterministic" else as_set(asked)

    def _precision(self) -> dict[str, Any]:
        if not self._observed.dtypes:
            return as_set(self._settings.precision)
        found = precision_seen(_names(tensor.dtype for tensor in self._parameters), _names(self._observed.dtypes))
        if found != "fp32" or not self._settings.on_gpu:
            return as_observed(found)
        allowed = tf.config.experimental.tensor_float_32_execution_enabled()
        return as_observed("tf32" if allowed and has_tf32(self._settings.effective_device) else "fp32")

    def _layout(self) -> dict[str, Any]:
        seen = self._observed.data_formats
        return as_observed(listed(seen).lower()) if seen else as_set(self._settings.data_format.lower())

    def _engine(self) -> dict[str, Any]:
        if self._by_xla:
            return as_observed("xla")
        if self._settings.on_gpu or not self._observed.operations:
            return as_set(self._settings.engine)
        return as_observed("onednn" if self._observed.onednn else "native")


def _names(dtypes: Any) -> set[str]:
    return precisions(str(dtype.name) for dtype in dtypes)
