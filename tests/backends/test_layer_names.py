"""Names of layers in compiled programs: they change nothing else, come through all ways to compile, or are missed."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterator

import pytest
from frameworks import environment_of
from shared_workers import shared_worker
from tiny_jobs import tiny_job
from workbench import Bench

from deepstone.launchers.local import SERVE_PATH
from deepstone.runner.conversation import JobFailed

# In JAX's own interpreter: a step compiled with names and without; then the same network as if it were a deep one.
COMPILE_TWICE = """
import contextlib, json, sys
sys.path.insert(0, sys.argv[1])
import jax
from deepstone.backends.base import Job, Unsupported
from deepstone.backends.xla.program import program_of
from deepstone.backends.jax import backend
from deepstone.graph.builder import Builder
from deepstone.graph.weights import initial_parameters, synthetic_batch
from deepstone.setups.request import complete

b = Builder("small")
x = b.relu("relu/1", b.conv("conv 1", b.input("data", (3, 8, 8)), channels=8, kernel=3, pad=1))
x = b.dropout("drop", b.flatten("flat", b.max_pool("pool", b.batch_norm("norm", x), kernel=2, stride=2)))
b.softmax_cross_entropy("loss", b.dense("dense", x, features=5))
graph = b.build()
samples, labels = synthetic_batch(graph, 4, 0)

def built():
    request = dict(complete({"framework": "jax", "device": "cpu", "batch": 4, "dropout": "on"}))
    made = backend.make_backend()
    made.build(Job(graph.to_worker_json(), initial_parameters(graph, 0), samples, labels, request, "."))
    return made

def compiled():
    made = built()
    made.first_step()
    (program,) = made._steps.compiled
    return {
        "instructions": [found.opcode for found in program_of(program.as_text()).instructions.values()],
        "flops": program.cost_analysis()["flops"],
        "bytes": program.memory_analysis().temp_size_in_bytes,
        "named": "layer_conv_20_1" in program.as_text(),
    }

named = compiled()
jax.named_scope = lambda name: contextlib.nullcontext()
plain = compiled()
backend.DEEP = 3
try:
    built().in_place(1)
except Unsupported as reason:
    print(json.dumps({"named": named, "plain": plain, "deep": str(reason)}))
"""


@functools.cache
def compiled_by_jax() -> dict:
    command = [environment_of("jax").program, "-c", COMPILE_TWICE, str(SERVE_PATH.parent.parent.parent)]
    # Not from JAX's cache, which takes programs that differ in names alone for one.
    variables = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return json.loads(subprocess.run(command, env=variables, capture_output=True, timeout=280, check=True).stdout)


class TestJax:
    def test_names_change_nothing_of_a_program(self):
        named, plain = compiled_by_jax()["named"], compiled_by_jax()["plain"]
        assert named.pop("named")
        assert not plain.pop("named")
        assert named == plain

    def test_a_chain_of_shared_programs_is_refused_with_the_reason(self):
        assert "like layers share" in compiled_by_jax()["deep"]


@pytest.fixture(scope="module")
def tensorflow() -> Iterator[Bench]:
    def job(**axes):
        return tiny_job("tensorflow", environment=environment_of("tensorflow"), threads=1, **axes)

    with shared_worker(job(), timeout_s=1800.0) as talk:
        yield Bench(talk, job)


class TestTensorFlow:
    def test_names_come_through_xla(self, tensorflow: Bench):
        tensorflow.prepare(engine="xla")
        times = tensorflow.talk.layers(2)
        for layer in ("conv1", "norm", "relu2", "pool", "dense", "loss"):
            assert min(times.layers_s[layer, "forward"]) > 0
            assert ("conv2", "backward") in times.layers_s
        assert min(times.update_s) > 0
        assert "XLA" in times.rule

    def test_fused_layers_belong_to_the_convolution(self, tensorflow: Bench):
        tensorflow.prepare(phase="forward")
        times = tensorflow.talk.layers(2).layers_s
        fused = {
            kernel["name"]: kernel["layers"]
            for kernel in tensorflow.talk.trace(1).to_json()["kernels"]
            if "layers" in kernel
        }
        assert any("FusedConv2D" in name and "conv1" in layers for name, layers in fused.items())
        assert min(times["conv1", "forward"]) > 0
        assert times["relu1", "forward"] == [0.0, 0.0]

    def test_run_eagerly_it_is_refused_with_the_reason(self, tensorflow: Bench):
        tensorflow.prepare(compile="off")
        with pytest.raises(JobFailed, match="compile=graph") as refusal:
            tensorflow.talk.layers(1)
        assert refusal.value.outcome == "unsupported"
