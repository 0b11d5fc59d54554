"""Converts the request's axes to TensorFlow settings: `auto` means TensorFlow's own choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf
from tensorflow.python.eager import context  # pyright: ignore[reportAttributeAccessIssue]

from deepstone.backends.base import Missing, Unsupported
from deepstone.backends.missing import no_gpu
from deepstone.backends.settings import StepSettings, refuse_broken_rules, step_settings
from deepstone.setups.axes import AUTO, TENSORFLOW

_WEIGHTS = {"bf16": tf.bfloat16, "fp64": tf.float64}
_ACTIVATIONS = {**_WEIGHTS, "bf16-mixed": tf.bfloat16}
_INTER_THREAD = "tf_Compute"  # how TensorFlow calls the threads that run operations side by side


@dataclass(frozen=True, kw_only=True, slots=True)
class Threads:
    """The number of threads within one operation, and the number of operations that run in parallel."""

    intra: int
    inter: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings(StepSettings):
    """The settings for the rest of the backend; process-wide switches are already set."""

    device: str  # as `tf.device` takes it
    effective_device: str  # as the axis has it
    threads: Threads
    engine: str
    compile: str
    algorithm: str
    precision: str
    weights: Any  # the number type of parameters
    activations: Any  # the number type in which layers compute
    channels_last: bool
    batch: int

    @property
    def on_gpu(self) -> bool:
        return self.effective_device != "cpu"

    @property
    def narrow(self) -> bool:
        return self.activations == tf.bfloat16

    @property
    def xla(self) -> bool:
        return self.compile == "default"

    @property
    def limited_kernels(self) -> bool:
        """TensorFlow's own CPU kernels lack a few gradients that XLA and GPU kernels have."""
        return not self.xla and not self.on_gpu

    @property
    def data_format(self) -> Literal["NHWC", "NCHW"]:
        return "NHWC" if self.channels_last else "NCHW"

    @property
    def channel_axis(self) -> int:
        return 3 if self.channels_last else 1


def apply(request: Mapping[str, Any]) -> Settings:
    """Resolve the device, refuse unsupported settings, set the process-wide switches."""
    device = _device(str(request["device"]))
    refuse_broken_rules(request, TENSORFLOW, device)
    compile_mode = _compile_mode(str(request["compile"]), str(request["engine"]))
    engine = _engine(str(request["engine"]), compile_mode, device)
    precision = _precision(str(request["precision"]), device)
    channels_last = request["layout"] != "nchw"
    if not channels_last and engine == "native":  # a build without oneDNN, or a process in which it is off
        raise Unsupported("on a CPU TensorFlow's own kernels take NHWC only; use layout=nhwc, or engine=xla")
    _hide_other_devices(device)
    threads = _start_threads(request["threads"], request["inter_threads"])
    return Settings(
        device="/CPU:0" if device == "cpu" else "/GPU:0",
        effective_device=device,
        threads=threads,
        engine=engine,
        compile=compile_mode,
        algorithm=_set_algorithm(str(request["algorithm"]), device),
        precision=precision,
        weights=_WEIGHTS.get(precision, tf.float32),
        activations=_ACTIVATIONS.get(precision, tf.float32),
        channels_last=channels_last,
        batch=int(request["batch"]),
        **step_settings(request),
    )


def _device(name: str) -> str:
    gpus = tf.config.list_physical_devices("GPU")
    if name == "cpu" or (name == AUTO and not gpus):
        return "cpu"
    index = 0 if name == AUTO else _index(name)
    if not gpus:
        raise Missing(no_gpu(name, TENSORFLOW, has_build=tf.test.is_built_with_cuda()))
    if index >= len(gpus):
        raise Missing(f"device {name}: TensorFlow sees {len(gpus)} GPU(s); use gpu:0 to the last of them")
    return f"gpu:{index}"


def _hide_other_devices(device: str) -> None:
    """Hide other devices: TensorFlow reserves all memory of every visible GPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices([] if device == "cpu" else gpus[_index(device)], "GPU")


def _index(device: str) -> int:
    return int(device.partition(":")[2])


def _compile_mode(asked: str, engine: str) -> str:
    if asked != AUTO:
        return asked
    return "default" if engine == "xla" else "graph"


def _engine(asked: str, compile_mode: str, device: str) -> str:
    if compile_mode == "default":
        return "xla"
    if device != "cpu":
        return "cudnn"
    built_in = "onednn" if onednn_is_on() else "native"
    if asked not in (AUTO, built_in):
        raise Unsupported(
            f"TensorFlow decides about oneDNN when it is imported, and this process has engine={built_in}"
        )
    return built_in


def onednn_is_on() -> bool:
    """Whether TensorFlow reports that it uses oneDNN's kernels in this process."""
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


def _precision(asked: str, device: str) -> str:
    if device == "cpu":
        return "fp32" if asked == AUTO else asked
    if asked == "tf32" and not has_tf32(device):
        name = _details(device).get("device_name", "this GPU")
        raise Unsupported(f"{name} has no TF32 (it came with compute capability 8.0)")
    tf.config.experimental.enable_tensor_float_32_execution(asked in (AUTO, "tf32"))
    if asked == AUTO:
        return "tf32" if has_tf32(device) else "fp32"
    return asked


def has_tf32(device: str) -> bool:
    return _details(device).get("compute_capability", (0, 0)) >= (8, 0)


def _details(device: str) -> dict[str, Any]:
    return tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[_index(device)])


def _set_algorithm(asked: str, device: str) -> str:
    if asked == "deterministic":
        tf.config.experimental.enable_op_determinism()
        return asked
    if asked != AUTO:
        return asked
    return "heuristic" if device == "cpu" else "benchmark"


_started: list[Threads] = []  # TensorFlow sizes its pools once per process


def _start_threads(intra: Any, inter: Any) -> Threads:
    """Start the pools as requested, or report their sizes from an earlier job. Threads are counted as they start."""
    if not _started:
        _started.append(_start_pools(intra, inter))
        return _started[0]
    threads = _started[0]
    if intra not in (AUTO, threads.intra) or inter not in (AUTO, threads.inter):
        raise Unsupported(
            f"TensorFlow sizes its thread pools once per process, and this one has threads={threads.intra} "
            f"inter_threads={threads.inter}"
        )
    return threads


def start_threads_with(start: Callable[[], None], intra: Any, inter: Any) -> None:
    """Have something else start the pools: a server that other processes find. Its own threads have the same names, so
    those within an operation are told as TensorFlow says. Both the server and the process itself have a pool of the
    others."""
    _set_threads(intra, inter)
    start()
    running = sum(name.startswith(_INTER_THREAD) for name in _thread_names())
    _started.append(
        Threads(
            intra=tf.config.threading.get_intra_op_parallelism_threads(),
            inter=tf.config.threading.get_inter_op_parallelism_threads() or running // 2,
        )
    )


def _set_threads(intra: Any, inter: Any) -> None:
    if intra != AUTO:
        tf.config.threading.set_intra_op_parallelism_threads(intra)
    if inter != AUTO:
        tf.config.threading.set_inter_op_parallelism_threads(inter)


def _start_pools(intra: Any, inter: Any) -> Threads:
    """Start the pools and count their threads. Those of the shared-work pool have the process's name, so their count is
    a difference."""
    _set_threads(intra, inter)
    before = _thread_names()
    context.ensure_initialized()
    tf.zeros(()).numpy()
    after = _thread_names()
    own_name = Path("/proc/self/comm").read_text()
    return Threads(
        intra=after.count(own_name) - before.count(own_name),
        inter=sum(name.startswith(_INTER_THREAD) for name in after),
    )


def _thread_names() -> list[str]:
    return [(thread / "comm").read_text() for thread in Path("/proc/self/task").iterdir()]
