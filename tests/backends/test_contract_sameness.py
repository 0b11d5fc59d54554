"""The contract of backends, second part: every operation is lowered right, by itself and within a step."""

from __future__ import annotations

import functools
from contextlib import ExitStack

import pytest
from awkward_ops import LATER_OPS, OPS, awkward, gated
from frameworks import FORWARD_ONLY, WITHOUT_GROUPS
from graph_examples import branching
from shared_workers import checks_sharing_workers
from single_layers import graph_job
from test_contract import SUBJECTS, Subject

from deepstone.absent import Absent
from deepstone.checks.layers import LayerCheck
from deepstone.checks.sameness import FrameworkSameness
from deepstone.checks.verify import verify
from deepstone.checks.workers import check_every_layer, start_all
from deepstone.graph.graph import Graph
from deepstone.runner.job import Job
from deepstone.runner.measurement import no_progress
from deepstone.setups.axes import Value

pytestmark = pytest.mark.usefixtures("unoptimized_xla")
TIMEOUT_S = 1800.0

# What a backend must be able to do by itself, and further setups of those that can.
SETUPS: dict[str, dict[str, Value]] = {
    "as it comes": {},
    "nchw": {"layout": "nchw"},
    "nhwc": {"layout": "nhwc"},
    "xla": {"engine": "xla"},
    "native": {"engine": "native"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "evaluation": {"phase": "forward"},
}
LATER = ("torch", "tensorflow", "jax")  # have what networks after 2017 need
NO_DOUBLE = ("tensorflow@1.2.1", "caffe", "onnxruntime")  # no convolution in float64, or float32 alone
UNABLE = {
    ("torch", "xla"): "torch_xla",
    ("jax", "native"): "XLA",
    ("torch@1.1.0", "nhwc"): "layout",
    ("torch@1.1.0", "xla"): "engine",
    ("torch@1.1.0", "native"): "engine",
    ("torch@1.1.0", "bf16-mixed"): "precision",
    ("chainer", "nhwc"): "layout",
    ("chainer", "xla"): "engine",
    ("chainer", "bf16-mixed"): "precision",
    ("chainer@7.8.1-ideep", "nhwc"): "layout",
    ("chainer@7.8.1-ideep", "xla"): "engine",
    ("chainer@7.8.1-ideep", "bf16-mixed"): "precision",
    ("cntk", "nhwc"): "layout",
    ("cntk", "xla"): "engine",
    ("cntk", "bf16-mixed"): "precision",
    ("tensorflow@1.12.0", "nchw"): "layout",
    ("tensorflow@1.12.0", "xla"): "engine",
    ("tensorflow@1.12.0", "bf16-mixed"): "precision",
    ("tensorflow@1.2.1", "nchw"): "layout",
    ("tensorflow@1.2.1", "xla"): "engine",
    ("tensorflow@1.2.1", "bf16-mixed"): "precision",
    ("tensorflow@1.12.0-intel", "nchw"): "layout",
    ("tensorflow@1.12.0-intel", "xla"): "engine",
    ("tensorflow@1.12.0-intel", "native"): "engine",
    ("tensorflow@1.12.0-intel", "bf16-mixed"): "precision",
    ("caffe", "nhwc"): "layout",
    ("caffe", "xla"): "engine",
    ("caffe", "bf16-mixed"): "precision",
    ("theano", "nhwc"): "layout",
    ("theano", "xla"): "engine",
    ("theano", "bf16-mixed"): "precision",
    ("paddle", "nhwc"): "layout",
    ("paddle", "xla"): "engine",
    ("paddle", "bf16-mixed"): "precision",
    ("mxnet", "nhwc"): "layout",
    ("mxnet", "xla"): "engine",
    ("mxnet", "native"): "engine",
    ("mxnet", "bf16-mixed"): "precision",
    ("neon", "nhwc"): "layout",
    ("neon", "nchw"): "layout",
    ("neon", "xla"): "engine",
    ("neon", "bf16-mixed"): "precision",
    ("torch7", "nhwc"): "layout",
    ("torch7", "xla"): "engine",
    ("torch7", "bf16-mixed"): "precision",
    ("onnxruntime", "nhwc"): "layout",
    ("onnxruntime", "xla"): "engine",
    ("onnxruntime", "bf16-mixed"): "precision",
}

real = [subject for subject in SUBJECTS if subject.computes]
# What these do anyhow, so that every layer would be compiled again to the same program; and what takes long to compile
# though it differs from a setup that is always tried by casts or transposes alone.
LEFT_TO_TEST_ALL = (
    *(("jax", setup) for setup in ("nhwc", "xla", "nchw", "bf16-mixed", "evaluation")),
    *(("tensorflow", setup) for setup in ("nhwc", "nchw", "native", "xla")),
)
# XLA compiles these for half a minute; it has every layer of them by itself, and whole steps of another network.
WHOLE_STEPS_LEFT_TO_TEST_ALL = (("jax", "awkward"), ("jax", "gated"))
every_setup = pytest.mark.parametrize(
    ("subject", "setup"),
    [
        pytest.param(
            subject,
            setup,
            id=f"{setup}-{subject}",
            marks=[pytest.mark.deep] * ((subject.name, setup) in LEFT_TO_TEST_ALL),
        )
        for setup in SETUPS
        for subject in real
    ],
)


def whole_step_marks(framework: str, graph: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.deep] * ((framework, graph) in WHOLE_STEPS_LEFT_TO_TEST_ALL)


whole_steps = pytest.mark.parametrize(
    ("subject", "graph"),
    [
        pytest.param(subject, graph, id=f"{graph}-{subject}", marks=whole_step_marks(subject.name, graph))
        for graph in ("awkward", "branching")
        for subject in real
    ],
)


def job(framework: str, graph: Graph, **axes: Value) -> Job:
    return graph_job(framework, graph, **{"device": "auto", **axes})


def able(framework: str) -> dict[str, Value]:
    """What is asked of every framework but those that do not train."""
    return {"phase": "forward"} if framework in FORWARD_ONLY else {}


def awkward_for(framework: str) -> Graph:
    return awkward(groups=framework not in WITHOUT_GROUPS)


def graph_of(framework: str, name: str) -> Graph:
    if name == "branching":
        return branching(groups=1 if framework in WITHOUT_GROUPS else 2)
    return awkward_for(framework) if name == "awkward" else gated()


@functools.cache
def whole_step(framework: str, graph_name: str) -> FrameworkSameness:
    graph = graph_of(framework, graph_name)
    one, yardstick = job(framework, graph, **able(framework)), job("torch", graph, **able(framework))
    with checks_sharing_workers():
        return verify({"it": one}, yardstick=yardstick, timeout_s=TIMEOUT_S).frameworks["it"]


@functools.cache
def layers(framework: str, setup: str, graph_name: str = "awkward") -> LayerCheck:
    graph = graph_of(framework, graph_name)
    one, found = job(framework, graph, **{**able(framework), **SETUPS[setup]}), FrameworkSameness()
    with checks_sharing_workers(), ExitStack() as stack:
        workers = start_all(stack, {"it": one}, {"it": found}, TIMEOUT_S, no_progress)
        check_every_layer(workers, one, {"it": found}, no_progress)
    return found.layers or LayerCheck(precision="not started", failure=found.failure)


@every_setup
def test_every_operation_alone(subject: Subject, setup: str):
    """Against the float64 reference: output, gradients of inputs and parameters, running statistics."""
    check = layers(subject.name, setup)
    unable = UNABLE.get((subject.name, setup))
    if unable is not None:
        assert check.failure.startswith("unsupported: ")
        assert unable in check.failure
        return
    assert check.ok, check.why_not()
    assert check.checked == len(awkward_for(subject.name).layers) - 1 > len(OPS)
    assert check.worst is not None
    assert check.worst.relative_error > 0


@every_setup
def test_every_later_operation_alone(subject: Subject, setup: str):
    """Right, or unsupported with the names of the operations."""
    if (subject.name, setup) in UNABLE or (subject.name not in LATER and setup != "as it comes"):
        pytest.skip("test_every_operation_alone has it")
    check = layers(subject.name, setup, "gated")
    if subject.name not in LATER:
        assert check.failure.startswith("unsupported: ")
        for kind in ("multiply", "slice", "shuffle", *(op.kind for op in LATER_OPS.values())):
            assert kind in check.failure
        return
    assert check.ok, check.why_not()
    assert check.checked == len(gated().layers) - 1 > len(LATER_OPS)


@pytest.mark.parametrize("framework", [pytest.param(name, marks=whole_step_marks(name, "gated")) for name in LATER])
def test_whole_steps_with_later_operations(framework: str):
    found = whole_step(framework, "gated")
    assert found.ok, found.why_not
    assert isinstance(found.float64, list)
    assert all(distance.ok for distance in found.float64)


@pytest.mark.parametrize("framework", WITHOUT_GROUPS)
def test_a_convolution_in_groups_is_refused_by_name(framework: str):
    one, found = job(framework, awkward()), FrameworkSameness()
    with checks_sharing_workers(), ExitStack() as stack:
        start_all(stack, {"it": one}, {"it": found}, TIMEOUT_S, no_progress)
    assert found.failure.startswith("unsupported: ")
    assert "conv in groups (layer 'conv in groups')" in found.failure


@whole_steps
def test_whole_steps_in_float64(subject: Subject, graph: str):
    """Gradients to 1e-9, and losses over five updates to 1e-8."""
    found = whole_step(subject.name, graph)
    assert found.failure == ""
    if subject.name in NO_DOUBLE:
        assert isinstance(found.float64, Absent)
        assert "precision=fp64" in found.float64.reason
        return
    assert isinstance(found.float64, list)
    for distance in found.float64:
        assert distance.ok, str(distance)
    assert len(found.losses) == 5


@whole_steps
def test_whole_steps_as_measured(subject: Subject, graph: str):
    found = whole_step(subject.name, graph)
    assert found.ok, found.why_not
