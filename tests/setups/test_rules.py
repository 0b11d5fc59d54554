"""Rules: each forbids what it says and nothing near it, and `auto` breaks none of them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepstone.setups import rules
from deepstone.setups.axes import AXES
from deepstone.setups.honoured import HONOURED
from deepstone.setups.request import complete
from deepstone.setups.rules import RULES, broken_rule
from deepstone.setups.schemes import TAKEN


def other_than(values: tuple[str, ...], axis: str) -> str:
    """A value of an axis that a framework does not take, and that breaks no other rule before."""
    offered = {"device": ("gpu:0",), "compile": ("default",)}.get(axis, AXES[axis].values)
    return next(value for value in offered if value not in ("auto", *values))


# What breaks a rule, a word of its reason, and the one change that mends it.
EXAMPLES = [
    ({"framework": "onnxruntime"}, "does not train", {"phase": "forward"}),
    ({"device": "cpu", "precision": "tf32"}, "TF32", {"device": "gpu:0"}),
    ({"device": "cpu", "precision": "tf32-conv"}, "TF32", {"precision": "fp32"}),
    ({"device": "cpu", "engine": "cudnn"}, "cudnn", {"engine": "onednn"}),
    ({"device": "gpu:1", "engine": "onednn"}, "onednn", {"device": "cpu"}),
    ({"framework": "torch", "engine": "mkl"}, "engine mkl is Neon's", {"framework": "neon@2.6.0"}),
    ({"device": "cpu", "algorithm": "benchmark"}, "a CPU engine has no such mode", {"device": "gpu:0"}),
    ({"engine": "native", "algorithm": "benchmark"}, "does not use cuDNN", {"engine": "cudnn"}),
    ({"device": "gpu:0", "isa": "avx2"}, "isa limits CPU libraries", {"device": "cpu"}),
    ({"device": "cpu", "power_limit": 300}, "that of a GPU", {"device": "gpu:0"}),
    ({"processes": 2, "power_limit": 300}, "one process", {"processes": 1}),
    ({"device": "gpu:0", "wait": "active"}, "threads of a CPU engine", {"device": "cpu"}),
    ({"device": "cpu", "compile": "coordinate-descent"}, "GPU kernels", {"device": "gpu:0"}),
    ({"device": "cpu", "compile": "max-autotune-no-cudagraphs"}, "CUDA graphs", {"compile": "max-autotune"}),
    ({"framework": "tensorflow", "algorithm": "benchmark-all"}, "TensorFlow tries", {"algorithm": "benchmark"}),
    ({"framework": "jax", "algorithm": "benchmark-all"}, "JAX tries", {"algorithm": "benchmark"}),
    ({"phase": "forward", "checkpointing": "on"}, "checkpointing", {"phase": "gradient"}),
    ({"phase": "forward", "input_grad": "on"}, "backward pass", {"phase": "train"}),
    ({"input_grad": "on", "input": "host"}, "input=resident", {"input": "resident"}),
    ({"phase": "gradient", "optimizer": "adam"}, "phase=train only", {"phase": "train"}),
    ({"phase": "forward", "dropout": "on"}, "identity in evaluation", {"phase": "gradient"}),
    ({"device": "cpu", "input": "pinned"}, "page-locked", {"input": "host"}),
    ({"device": "cpu", "compile": "reduce-overhead"}, "CUDA graphs", {"compile": "default"}),
    ({"device": "gpu", "compile": "reduce-overhead", "accumulate": 2}, "overwrites", {"compile": "default"}),
    ({"compile": "default", "checkpointing": "on"}, "choose one", {"compile": "off"}),
    ({"overlap": "off"}, "there is one", {"processes": 2}),
    ({"compression": "fp16", "nodes": 1}, "there is one", {"compression": "none"}),
    ({"processes": 3, "nodes": 2, "batch": 6}, "a multiple of nodes", {"nodes": 1}),
    ({"processes": 3}, "batch=8/process", {"batch": 33}),
    ({"processes": 2, "accumulate": 3}, "batch=8/process", {"batch": "6/process"}),
    ({"processes": 2, "phase": "forward"}, "train together", {"phase": "train"}),
    ({"accumulate": 2, "phase": "gradient"}, "before an update", {"phase": "train"}),
    ({"processes": 2, "nodes": 2, "launcher": "torchrun"}, "this machine", {"launcher": "srun"}),
    ({"launcher": "mpirun"}, "processes=2", {"processes": 2}),
    ({"processes": 2, "device": "cpu", "transport": "nccl"}, "NCCL", {"transport": "gloo"}),
    ({"processes": 2, "transport": "mpi", "launcher": "local"}, "mpirun", {"launcher": "auto"}),
    ({"processes": 2, "transport": "mpi", "overlap": "on"}, "inside its calls", {"overlap": "off"}),
    ({"processes": 2, "transport": "mpi", "device": "gpu:0"}, "memory of CPUs", {"device": "cpu"}),
    ({"processes": 2, "transport": "mpi", "bucket": 4}, "no buckets", {"bucket": "auto"}),
    ({"processes": 2, "collective": "reduce-broadcast", "overlap": "on"}, "overlap=off", {"overlap": "off"}),
    ({"processes": 2, "collective": "reduce-broadcast", "compression": "onebit"}, "plain", {"compression": "none"}),
    ({"processes": 2, "collective": "reduce-broadcast", "bucket": 4}, "no buckets", {"bucket": "auto"}),
    ({"processes": 2, "overlap": "off", "bucket": 4}, "no buckets", {"overlap": "on"}),
    ({"processes": 4, "scheme": "hybrid", "framework": "fake"}, "pipeline=2", {"pipeline": 2}),
    (
        {"processes": 4, "scheme": "hybrid", "pipeline": 3, "framework": "fake"},
        "a multiple of pipeline",
        {"pipeline": 2},
    ),
    ({"processes": 2, "scheme": "hybrid", "pipeline": 2, "framework": "fake"}, "one pipeline", {"scheme": "pipeline"}),
    ({"processes": 4, "scheme": "pipeline", "pipeline": 2, "framework": "fake"}, "hybrid", {"scheme": "hybrid"}),
    ({"processes": 2, "servers": 2}, "choose a scheme", {"scheme": "server", "framework": "fake"}),
    ({"processes": 2, "scheme": "server", "device": "gpu:0", "framework": "fake"}, "device=cpu", {"device": "cpu"}),
    (
        {"processes": 2, "scheme": "sharded", "precision": "fp16-mixed", "framework": "fake"},
        "bf16-mixed",
        {"precision": "bf16-mixed"},
    ),
    (
        {"processes": 2, "scheme": "sharded", "layout": "nhwc"},
        "contiguous",
        {"layout": "nchw"},
    ),
    (
        {"processes": 2, "scheme": "sharded", "checkpointing": "on", "framework": "fake"},
        "checkpointing=off",
        {"checkpointing": "off"},
    ),
    ({"processes": 2, "library": "deepspeed"}, "scheme=sharded", {"scheme": "sharded"}),
    (
        {"processes": 2, "library": "deepspeed", "scheme": "sharded", "precision": "fp64"},
        "precision=fp32",
        {"precision": "fp32"},
    ),
    ({"processes": 2, "library": "horovod", "scheme": "sharded"}, "scheme=data", {"scheme": "data"}),
    ({"processes": 2, "library": "horovod", "overlap": "off"}, "plain gradients", {"overlap": "on"}),
    ({"processes": 2, "library": "horovod", "compression": "fp16"}, "plain gradients", {"compression": "none"}),
    ({"processes": 2, "library": "horovod", "device": "gpu:0"}, "device=cpu", {"device": "cpu"}),
    ({"processes": 2, "library": "mpi4py"}, "transport=mpi", {"transport": "mpi"}),
    (
        {"processes": 4, "scheme": "pipeline", "schedule": "1f1b", "microbatches": 2, "framework": "fake"},
        "as many microbatches",
        {"schedule": "gpipe"},
    ),
    (
        {
            "processes": 2,
            "scheme": "pipeline",
            "schedule": "interleaved",
            "microbatches": 5,
            "batch": 10,
            "framework": "fake",
        },
        "a multiple of them",
        {"microbatches": 10},
    ),
    *(
        ({**broken, "scheme": scheme, "processes": 4, **needed}, word, mended)
        for scheme, needed in {
            "sharded": {},
            "server": {},
            "server-async": {},
            "pipeline": {},
            "hybrid": {"pipeline": 2},
        }.items()
        for broken, word, mended in (
            ({"framework": "fake", "overlap": "off"}, "has no", {"overlap": "auto"}),
            ({"framework": "mxnet"}, "built", {"framework": "fake"}),
            ({"framework": "fake", "transport": "mpi"}, "moves data by", {"transport": "gloo"}),
        )
    ),
    *(
        ({"processes": 2, "framework": framework, axis: other_than(values, axis)}, "takes", {axis: values[0]})
        for framework, axes in TAKEN.items()
        for axis, values in axes.items()
    ),
    *(
        ({"framework": framework, **broken}, word, mended)
        for framework, examples in {
            "torch": (
                ({"compile": "graph"}, "left uncompiled", {"compile": "default"}),
                ({"engine": "xla"}, "torch_xla", {"framework": "jax"}),
                ({"engine": "onednn", "precision": "fp64"}, "engine=native", {"engine": "native"}),
            ),
            "tensorflow": (
                ({"compile": "max-autotune"}, "one mode", {"compile": "default"}),
                ({"engine": "xla", "compile": "off"}, "ask for none", {"compile": "default"}),
                ({"engine": "onednn", "compile": "default"}, "other kernels", {"compile": "graph"}),
                ({"engine": "native", "device": "gpu:1"}, "cuDNN's", {"device": "cpu"}),
                ({"engine": "onednn", "precision": "fp64"}, "engine=native", {"engine": "native"}),
                ({"precision": "fp16-mixed"}, "loss scaling", {"precision": "bf16-mixed"}),
                ({"precision": "tf32-conv"}, "one switch", {"precision": "tf32"}),
                ({"optimizer": "momentum-fused"}, "one kernel", {"optimizer": "momentum"}),
                ({"optimizer": "own"}, "framework=torch", {"framework": "torch"}),
                ({"isa": "sse41"}, "compiled for AVX", {"isa": "avx"}),
                ({"device": "cpu", "layout": "nchw", "engine": "native"}, "own", {"engine": "xla"}),
                ({"device": "cpu", "layout": "nchw", "precision": "fp64"}, "fp64", {"engine": "xla"}),
                ({"device": "cpu", "layout": "nchw", "compile": "off"}, "MaxPoolGrad", {"phase": "forward"}),
                ({"input": "pinned"}, "page-locks", {"input": "host"}),
            ),
            "jax": (
                ({"engine": "native"}, "engine=xla", {"engine": "xla"}),
                ({"compile": "off"}, "compile=default", {"compile": "default"}),
                ({"precision": "fp16-mixed"}, "bf16-mixed", {"precision": "bf16-mixed"}),
                ({"optimizer": "momentum-fused"}, "fuses every update", {"optimizer": "momentum"}),
                ({"optimizer": "own"}, "framework=torch", {"framework": "torch"}),
                ({"isa": "avx2"}, "in name only", {"isa": "auto"}),
                ({"inter_threads": 2}, "use threads", {"inter_threads": "auto"}),
                ({"threads": 2, "device": "gpu:0"}, "CPU client", {"device": "cpu"}),
                ({"algorithm": "deterministic", "device": "cpu"}, "GPU compiler", {"device": "gpu:0"}),
            ),
        }.items()
        for broken, word, mended in examples
    ),
]

# Every value that a framework takes of an axis, by the tables; ONNX Runtime only runs networks.
TABLED = [
    (framework, axis, value)
    for framework, axes in HONOURED.items()
    for axis, values in axes.items()
    for value in values
]


def words(part: dict[str, str] | str) -> str:
    return part if isinstance(part, str) else " ".join(f"{name}={value}" for name, value in part.items())


@pytest.mark.parametrize(("broken", "word", "mended"), EXAMPLES, ids=words)
def test_a_rule_and_what_mends_it(broken, word: str, mended):
    reason = broken_rule(complete(broken))
    assert reason
    assert word in reason
    assert broken_rule(complete({**broken, **mended})) is None


def test_every_rule_has_an_example():
    assert {broken_rule(complete(broken)) for broken, _, _ in EXAMPLES} == {rule.reason for rule in RULES}


def named(framework: str) -> dict[str, str]:
    """The tables name a legacy version `torch 1`."""
    asked = framework.replace(" 1", "@1.1.0")
    return {"framework": asked, **({"phase": "forward"} if framework == "onnxruntime" else {})}


@pytest.mark.parametrize(("framework", "axis"), sorted({(framework, axis) for framework, axis, _ in TABLED}))
def test_a_value_that_a_framework_does_not_take(framework: str, axis: str):
    offered = {"device": ("gpu:0",), "processes": (2,), "nodes": (2,), "accumulate": (2,), "inter_threads": (2,)}
    for value in offered.get(axis, AXES[axis].values):
        if value not in HONOURED[framework][axis]:
            reason = broken_rule(complete({**named(framework), axis: value}))
            assert reason, value
    for value in HONOURED[framework][axis]:
        assert broken_rule(complete({**named(framework), axis: value})) is None


def test_a_legacy_version_is_known_by_its_number():
    refused = {"framework": "torch@1.1.0", "accumulate": 2}
    assert broken_rule(complete(refused)) == "torch 1 takes accumulate=1 only"
    for version in ("torch", "torch@2.13.0", "torch@2.13.0+cpu"):
        assert broken_rule(complete({**refused, "framework": version})) is None
    assert broken_rule(complete({"framework": "tensorflow@1.12.0-intel", "compile": "graph"})) is None
    assert broken_rule(complete({"framework": "tensorflow@1.12.0-intel", "compile": "off"}))


def test_the_defaults_break_no_rule():
    assert broken_rule(complete({})) is None


@pytest.mark.parametrize("phase", ["forward", "gradient", "train"])
@pytest.mark.parametrize("device", ["auto", "cpu", "gpu:0"])
def test_a_plain_request_breaks_no_rule(device: str, phase: str):
    assert broken_rule(complete({"device": device, "phase": phase})) is None


CHOICES = {name: st.sampled_from(axis.values) for name, axis in AXES.items() if axis.type == "choice"}


@given(asked=st.fixed_dictionaries({}, optional={**CHOICES, "device": st.sampled_from(["auto", "cpu", "gpu:0"])}))
def test_a_request_breaks_the_rule_that_it_is_told(asked):
    """The reason is that of a rule which this very request breaks; and where all was left open, nothing is broken."""
    request = complete(asked)
    reason = broken_rule(request)
    assert [rule.reason for rule in RULES if rule.broken(request)][:1] == ([reason] if reason else [])
    left_open = {name: AXES[name].default for name in asked}
    assert broken_rule(complete(left_open)) is None


def test_an_axis_that_a_framework_does_not_honour(monkeypatch: pytest.MonkeyPatch):
    deaf = dataclasses.replace(AXES["isa"], honoured_by=("torch",))
    monkeypatch.setitem(rules.AXES, "isa", deaf)
    assert broken_rule(complete({"framework": "fake", "isa": "avx2"})) == "fake does not honour the axis isa"
    assert broken_rule(complete({"framework": "fake@1", "isa": "avx2"})) == "fake does not honour the axis isa"
    assert broken_rule(complete({"framework": "fake"})) is None
    assert broken_rule(complete({"framework": "torch", "isa": "avx2"})) is None
    assert broken_rule(complete({"framework": "auto", "isa": "avx2"})) is None
