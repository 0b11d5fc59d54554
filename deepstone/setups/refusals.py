"""What frameworks refuse, as data: combinations of values that a backend cannot run, whatever the machine.

`setups/rules.py` makes rules of them, so that no process starts for such a request. What depends on the machine or on
the build of a framework is decided in the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deepstone.setups.axes import AUTO, AXES, JAX, TENSORFLOW, TORCH, Value

ANY: Final[tuple[Value, ...]] = ()  # every value but the default
# The layers of a step that a framework runs as one program; a deeper network is a chain of programs, which is not built
# for several processes or for parts of a batch.
MOST_LAYERS_IN_PARTS: Final[Mapping[str, int]] = {JAX: 1000}
_INDUCTOR_MODES: Final = ("reduce-overhead", "coordinate-descent", "max-autotune-no-cudagraphs", "max-autotune")
_NOT_COMPILED: Final = (AUTO, "onednn", "native")  # engines with which TensorFlow does not compile by default


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A framework refuses a request whose axes all have one of these values. `gpu` stands for any GPU."""

    framework: str
    when: Mapping[str, tuple[Value, ...]]
    reason: str

    def fits(self, request: Mapping[str, Value]) -> bool:
        """Whether all its conditions hold; `auto` fulfils one only where it is named."""
        return all(_is_among(axis, request[axis], values) for axis, values in self.when.items())


def _is_among(axis: str, value: Value, values: tuple[Value, ...]) -> bool:
    if values == ANY:
        return value != AXES[axis].default
    return (str(value).partition(":")[0] if axis == "device" else value) in values


REFUSALS: Final = (
    Refusal(
        framework=TORCH,
        when={"compile": ("graph",)},
        reason="torch runs eagerly or compiled; it has no graph that is recorded and left uncompiled; use compile=off "
        "or default",
    ),
    Refusal(
        framework=TORCH,
        when={"engine": ("xla",)},
        reason="torch runs on XLA with torch_xla only, which this backend does not use; leave out engine",
    ),
    Refusal(
        framework=TORCH,
        when={"engine": ("onednn",), "precision": ("fp64",)},
        reason="oneDNN trains in fp32 and narrower, and torch leaves fp64 to its own kernels; use engine=native",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"compile": _INDUCTOR_MODES},
        reason="XLA in TensorFlow has one mode; use compile=default",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"engine": ("xla",), "compile": ("off", "graph")},
        reason="engine=xla runs programs that XLA compiled, and compile=off and graph ask for none; leave out compile",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"compile": ("default",), "engine": ("onednn", "cudnn", "native")},
        reason="TensorFlow compiles with XLA, and other engines ask for other kernels; leave out engine",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"device": ("gpu",), "engine": ("native",)},
        reason="TensorFlow's convolutions on a GPU are cuDNN's; it has none of its own; leave out engine",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"engine": ("onednn",), "precision": ("fp64",)},
        reason="oneDNN trains in fp32 and narrower, and TensorFlow leaves fp64 to its own kernels; use engine=native",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"precision": ("fp16-mixed",)},
        reason="fp16-mixed needs loss scaling, which this backend of TensorFlow does not do; use bf16-mixed",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"precision": ("tf32-conv",)},
        reason="TensorFlow has one switch for TF32, for convolutions and matrix products together; use tf32",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"optimizer": ("momentum-fused",)},
        reason="TensorFlow's momentum update is one kernel already; use optimizer=momentum",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"isa": ("sse41",)},
        reason="TensorFlow's own kernels are compiled for AVX and cannot be limited to less; use isa=avx or wider",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"device": ("cpu",), "layout": ("nchw",), "engine": ("native",)},
        reason="on a CPU TensorFlow's own kernels take NHWC only; use layout=nhwc, or engine=xla",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={
            "device": ("cpu",),
            "layout": ("nchw",),
            "precision": ("fp64",),
            "compile": (AUTO, "off", "graph"),
            "engine": _NOT_COMPILED,
        },
        reason="on a CPU TensorFlow's kernels for fp64 take NHWC only; use layout=nhwc, or engine=xla",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"device": ("cpu",), "layout": ("nchw",), "compile": ("off",), "phase": ("gradient", "train")},
        reason="run eagerly on a CPU, TensorFlow's MaxPoolGrad takes NHWC only; use layout=nhwc",
    ),
    Refusal(
        framework=TENSORFLOW,
        when={"input": ("pinned",)},
        reason="TensorFlow page-locks memory of its own only, not a batch; use input=host",
    ),
    Refusal(
        framework=JAX,
        when={"engine": ("onednn", "cudnn", "native")},
        reason="JAX has no choice of engine: XLA compiles every operation, and decides what it gives to oneDNN or "
        "cuDNN; use engine=xla",
    ),
    Refusal(
        framework=JAX,
        when={"compile": ("off", "graph", *_INDUCTOR_MODES)},
        reason="JAX compiles every operation, with jit in one mode; use compile=default",
    ),
    Refusal(
        framework=JAX,
        when={"precision": ("fp16-mixed",)},
        reason="JAX has no loss scaling of its own, which training in fp16 needs; use bf16-mixed",
    ),
    Refusal(
        framework=JAX,
        when={"optimizer": ("momentum-fused",)},
        reason="XLA fuses every update, so there is one way only; use optimizer=momentum",
    ),
    Refusal(
        framework=JAX,
        when={"isa": ANY},
        reason="XLA's limit of the instruction set binds the code that it generates, not the libraries that run its "
        "matrix products and convolutions, so it would be one in name only; leave out isa",
    ),
    Refusal(
        framework=JAX,
        when={"inter_threads": ANY},
        reason="XLA runs independent operations on the threads that share the work of one; use threads",
    ),
    Refusal(
        framework=JAX,
        when={"device": ("gpu",), "threads": ANY},
        reason="threads are those of XLA's CPU client, which a step on a GPU does not use; leave out threads",
    ),
    Refusal(
        framework=JAX,
        when={"device": ("cpu",), "algorithm": ("deterministic",)},
        reason="XLA's switch to deterministic operations is one of its GPU compiler; on a CPU leave out algorithm",
    ),
    *(
        Refusal(
            framework=framework,
            when={"algorithm": ("benchmark-all",)},
            reason=f"how many algorithms {name} tries cannot be set; use algorithm=benchmark",
        )
        for framework, name in ((TENSORFLOW, "TensorFlow"), (JAX, "JAX"))
    ),
    *(
        Refusal(
            framework=framework,
            when={"optimizer": ("own",)},
            reason=f"an optimizer of your own is one of torch's, not {name}'s; use framework=torch",
        )
        for framework, name in ((TENSORFLOW, "TensorFlow"), (JAX, "JAX"))
    ),
)
