"""What torch keeps of each layer for backward, against what the graph says it must, in a real worker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from tiny_jobs import tiny, tiny_job
from workbench import Bench

from deepstone.absent import Absent
from deepstone.graph.builder import Builder
from deepstone.graph.memory import step_memory
from deepstone.models.load import LoadedModel
from deepstone.runner.conversation import JobFailed, talking_to_worker
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

BATCH = 8


def job(**axes: Value) -> Job:
    return tiny_job("torch", device="cpu", **{"batch": BATCH, **axes})


def kept(bench: Bench, **axes: Value) -> dict[str, int]:
    bench.prepare(**axes)
    return {name: memory.kept_bytes for name, memory in bench.talk.memory_by_layer().items()}


def activations(**options: Any) -> dict[str, int]:
    memory = step_memory(tiny(), batch=BATCH, phase="train", **options)
    return {layer.name: layer.activations_bytes for layer in memory.layers}


def test_layers_keep_what_the_graph_says_they_must(bench: Bench):
    found, expected = kept(bench), activations()
    assert list(found) == [layer.name for layer in tiny().layers]
    for name in ("conv1", "relu1", "conv2", "relu2", "pool", "flatten", "drop"):
        assert found[name] == expected[name], name
    assert found["data"] == expected["data"] + 8 * BATCH  # the labels, which the loss reads again, come with the images
    assert found["norm"] == expected["norm"] + 2 * 4 * 32  # and the batch's mean and deviation
    # The loss keeps its own log of the softmax instead of the dense layer's scores, and the sum of its weights.
    assert found["dense"] == 0
    assert expected["dense"] <= found["loss"] <= expected["dense"] + 64


def test_dropout_that_drops_keeps_its_mask(bench: Bench):
    off, on = kept(bench), kept(bench, dropout="on")
    assert on["drop"] > off["drop"] == 0


def test_a_narrow_format_keeps_half(bench: Bench):
    wide, narrow = kept(bench), kept(bench, precision="bf16")
    assert narrow["conv1"] * 2 == wide["conv1"]


def test_evaluation_keeps_nothing(bench: Bench):
    assert set(kept(bench, phase="forward").values()) == {0}


def test_the_steps_go_on_as_if_nothing_had_been_looked_at(bench: Bench):
    plain = bench.losses(3)
    bench.prepare()
    first = bench.talk.losses(0)
    bench.talk.memory_by_layer()
    assert [*first, *bench.talk.losses(0), *bench.talk.losses(1)] == plain


def test_workspace_is_absent_on_the_cpu(bench: Bench):
    bench.prepare()
    for memory in bench.talk.memory_by_layer().values():
        assert isinstance(memory.workspace_bytes, Absent)
        assert "CPU" in memory.workspace_bytes.reason


def test_what_is_computed_again_is_not_accounted_for(bench: Bench):
    bench.prepare(checkpointing="on")
    with pytest.raises(JobFailed, match="checkpointing"):
        bench.talk.memory_by_layer()


def test_a_max_pool_keeps_where_it_looked_and_padding_its_own_copy():
    b = Builder("padded")
    x = b.relu("relu", b.conv("conv", b.input("data", (4, 8, 8)), channels=8, kernel=3, pad=(0, 1, 0, 1)))
    x = b.max_pool("pool", x, kernel=2, stride=2)
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flat", x), features=10))
    graph = b.build()
    padded = replace(job(), model=LoadedModel(graph=graph, name=graph.name, source="zoo", file_sha256=""))
    with talking_to_worker(padded, timeout_s=200) as talk:
        talk.hello()
        talk.prepare()
        found = {name: memory.kept_bytes for name, memory in talk.memory_by_layer().items()}
        talk.close()
    conv, pool = 8 * 7 * 7, 8 * 3 * 3
    assert found["conv"] == 4 * BATCH * (conv + 4 * 9 * 9)  # its output, and the image with its border
    assert found["pool"] == BATCH * pool * (4 + 8)  # its output, and where each value came from
    assert found["relu"] == 0


def test_the_peak_holds_what_must_be_there(bench: Bench):
    bench.prepare(batch=512)
    peak = bench.talk.memory_peak(2)
    grown = peak.memory["host_growth_bytes"]
    assert grown == peak.step_bytes
    assert grown > step_memory(tiny(), batch=512, phase="train").total_bytes
    assert peak.whole_bytes == peak.memory["host_peak_bytes"] > grown


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_layers_tell_their_workspace_and_keep_the_same():
    on_cpu = {layer.name: layer.activations_bytes for layer in step_memory(tiny(), batch=BATCH, phase="train").layers}
    with talking_to_worker(tiny_job("torch", device="gpu:0", batch=BATCH), timeout_s=200) as talk:
        talk.hello()
        talk.prepare()
        peak = talk.memory_peak(2)
        found = talk.memory_by_layer()
        talk.close()
    assert found["conv1"].kept_bytes == on_cpu["conv1"]
    assert all(memory.workspace_bytes >= 0 for memory in found.values())
    assert isinstance(peak.step_bytes, int)
    assert peak.step_bytes >= sum(memory.kept_bytes for memory in found.values())
    assert peak.available_bytes > peak.step_bytes
