"""Inside a user's own torch module: its parts by name, and their times, FLOPs, memory and ranges in a trace."""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from tiny_jobs import machine, tiny_job
from workbench import Bench

from deepstone.absent import Absent
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Module, ModuleLoss, SoftmaxCrossEntropy, Tensors
from deepstone.models.load import LoadedModel
from deepstone.runner.job import Job
from deepstone.runner.replies import InPlaceTimes, MemoryOfLayer
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

BATCH, LENGTH, WIDTH, VOCABULARY = 4, 6, 8, 11

GPT = """\
import torch
from torch import nn
from torch.nn import functional as F

INPUTS = {
    "tokens": {"shape": (6,), "type": "int64", "vocabulary": 11},
    "wanted": {"shape": (6,), "type": "int64", "vocabulary": 11},
}

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.idle = nn.Identity()

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.idle(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attention = Attention()

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + F.gelu(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.zeros(6, 8))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.mix = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.mix(x)[0])

def make():
    return Net()

def loss(outputs, batch):
    return F.cross_entropy(outputs.flatten(0, 1), batch["wanted"].flatten())
"""
BLOCK = ("norm", "attention.qkv", "attention.views()", "attention.index()", "attention.scaled_dot_product_attention()")
PARTS = [
    "embedding",
    "add()",
    *(f"blocks.{block}.{name}" for block in (0, 1) for name in (*BLOCK, "add()", "gelu()")),
    "mix",
    "head",
    "loss.flatten()",
    "loss.cross_entropy()",
]
CONVOLUTION = """\
import torch
from torch import nn

INPUT_SHAPE = (3, 8, 8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 4))
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())

    def forward(self, x):
        return self.body(x).mean((2, 3)) @ self.weight.T

def make():
    return Net()
"""


def job(**axes: Value) -> Job:
    return tiny_job("torch", device="cpu", **axes)


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def prepare(bench: Bench, path: Path, text: str, **axes: Value) -> None:
    path.write_text(text)
    told = {"path": str(path), "function": "make", "weights": 1, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    if "INPUTS" in text:
        layers = [
            Layer(name="data", op=Tensors(spec="tokens", values=12)),
            Layer(name="module", op=ModuleLoss(**told), inputs=("data",)),
        ]
    else:
        layers = [
            Layer(name="data", op=Input(shape=(3, 8, 8))),
            Layer(name="module", op=Module(features=6, **told), inputs=("data",)),
            Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("module",)),
        ]
    graph = Graph("net:make", layers)

    def make_job(**axes: Value) -> Job:
        return Job(
            model=LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256="0" * 64),
            request=complete({"framework": "torch", "device": "cpu", "threads": 1, "batch": BATCH, **axes}),
            environment=tiny_job("torch").environment,
            machine=machine(),
            command=("deepstone", "layers", "net.py:make"),
        )

    bench._make_job = make_job
    bench.prepare(**axes)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return tmp_path / "net.py"


def timed(bench: Bench, net: Path, text: str = GPT, **axes: Value) -> InPlaceTimes:
    prepare(bench, net, text, **axes)
    return bench.talk.layers(2)


class TestTimes:
    def test_parts_are_submodules_and_the_functions_between_them(self, bench: Bench, net: Path) -> None:
        found = timed(bench, net)
        assert [name for name, direction in found.layers_s if direction == "forward"] == PARTS
        backward = {name for name, direction in found.layers_s if direction == "backward"}
        assert backward == set(PARTS)
        classes = {part.name: part.op for part in found.parts}
        assert classes["blocks.0.norm"] == "LayerNorm"
        assert classes["blocks.1.attention.scaled_dot_product_attention()"] == "scaled_dot_product_attention()"
        assert dict(found.containers)["blocks.1.attention"] == "Attention"
        assert {part.name: part.path for part in found.parts}["blocks.0.gelu()"] == "blocks.0"

    def test_they_add_up_to_the_step(self, bench: Bench, net: Path) -> None:
        found = timed(bench, net)
        for step, total_s in enumerate(found.total_s):
            layers_s = sum(times[step] for times in found.layers_s.values())
            others_s = sum(times[step] for times in found.other_s.values())
            parts_s = layers_s + others_s + found.data_s[step] + found.update_s[step] + found.gaps_s[step]
            assert parts_s == pytest.approx(total_s)

    def test_forward_alone(self, bench: Bench, net: Path) -> None:
        found = timed(bench, net, phase="forward")
        assert list(found.layers_s) == [(name, "forward") for name in PARTS]

    def test_looking_changes_no_result(self, bench: Bench, net: Path) -> None:
        prepare(bench, net, GPT, seed=3)
        plain = bench.talk.losses(6)
        prepare(bench, net, GPT, seed=3)
        bench.talk.layers(1)
        # The timed step, the one before it and the one that counts FLOPs are steps like all others.
        assert bench.talk.losses(2) == plain[3:5]

    def test_a_module_of_torch_itself_is_one_part(self, bench: Bench, net: Path) -> None:
        text = "from torch import nn\nINPUT_SHAPE = (3, 8, 8)\ndef make():\n    return NET\n"
        text = text.replace("NET", "nn.Sequential(nn.Flatten(), nn.Linear(192, 6))")
        found = timed(bench, net, text)
        assert list(dict.fromkeys(name for name, _ in found.layers_s)) == ["0", "1", "loss"]

    def test_what_holds_its_weights_itself_is_shown_by_its_calls(self, bench: Bench, net: Path) -> None:
        found = timed(bench, net, CONVOLUTION)
        names = list(dict.fromkeys(name for name, _ in found.layers_s))
        assert names == ["body.0", "body.1", "mean()", "matmul()", "loss"]


class TestFlops:
    def test_products_and_attention_are_counted(self, bench: Bench, net: Path) -> None:
        flops = {part.name: part.flops for part in timed(bench, net).parts}
        tokens = BATCH * LENGTH
        qkv = 2 * tokens * WIDTH * 3 * WIDTH
        assert flops["blocks.0.attention.qkv"] == {"forward": qkv, "backward": 2 * qkv}
        assert flops["head"] == {
            "forward": 2 * tokens * WIDTH * VOCABULARY,
            "backward": 4 * tokens * WIDTH * VOCABULARY,
        }
        attention = flops["blocks.0.attention.scaled_dot_product_attention()"]
        assert attention["forward"] == 2 * 2 * BATCH * LENGTH * LENGTH * WIDTH
        assert attention["backward"] > attention["forward"]
        assert flops["blocks.0.norm"] == {"forward": 0, "backward": 0}

    def test_what_the_counter_does_not_know_is_absent(self, bench: Bench, net: Path) -> None:
        flops = {part.name: part.flops for part in timed(bench, net).parts}
        for direction in ("forward", "backward"):
            unknown = flops["mix"][direction]
            assert isinstance(unknown, Absent)
            assert "rnn" in unknown.reason

    def test_a_convolution(self, bench: Bench, net: Path) -> None:
        flops = {part.name: part.flops for part in timed(bench, net, CONVOLUTION).parts}
        forward = 2 * BATCH * 36 * 4 * 27
        assert flops["body.0"] == {"forward": forward, "backward": forward}  # images have no gradient


class TestMemory:
    def found(self, bench: Bench, net: Path, text: str = GPT, **axes: Value) -> dict[str, MemoryOfLayer]:
        prepare(bench, net, text, **axes)
        return bench.talk.memory_by_layer()

    def test_each_parameter_counts_once(self, bench: Bench, net: Path) -> None:
        found = self.found(bench, net, optimizer="adam")
        shared, places = found["embedding"], found["Net"]
        assert shared.parameters_bytes == shared.gradients_bytes == 4 * VOCABULARY * WIDTH
        assert 2 * shared.parameters_bytes <= shared.optimizer_bytes <= 2 * shared.parameters_bytes + 16
        assert found["head"].parameters_bytes == 0
        assert (places.op, places.parameters_bytes) == ("Net", 4 * LENGTH * WIDTH)

    def test_activations_count_where_they_were_made(self, bench: Bench, net: Path) -> None:
        found = self.found(bench, net)
        value = 4 * BATCH * LENGTH * WIDTH
        assert found["blocks.0.attention.qkv"].kept_bytes == 3 * value  # attention reads all of it again
        assert found["add()"].kept_bytes == value  # the norm does
        assert found["blocks.0.gelu()"].kept_bytes == 0

    def test_forward_keeps_nothing(self, bench: Bench, net: Path) -> None:
        found = self.found(bench, net, phase="forward")
        sizes = [(each.kept_bytes, each.gradients_bytes, each.optimizer_bytes) for each in found.values()]
        assert set(sizes) == {(0, 0, 0)}
        assert found["embedding"].parameters_bytes > 0

    def test_of_images(self, bench: Bench, net: Path) -> None:
        found = self.found(bench, net, CONVOLUTION)
        assert list(found) == ["data", "body.0", "body.1", "mean()", "matmul()", "Net", "loss"]
        assert found["data"].kept_bytes == 4 * BATCH * 3 * 64 + 8 * BATCH  # and the labels


def test_a_trace_nests_blocks_submodules_and_functions(bench: Bench, net: Path) -> None:
    prepare(bench, net, GPT)
    path = net.with_suffix(".json")
    trace = bench.talk.trace(1, str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]

    def spans(name: str) -> list[tuple[float, float]]:
        ranges = [event for event in events if event["name"] == name and event["cat"] == "user_annotation"]
        return [(event["ts"], event["ts"] + event["dur"]) for event in ranges]

    nested = [
        "Net",
        "blocks.1 (Block)",
        "blocks.1.attention (Attention)",
        "deepstone layer: blocks.1.attention.scaled_dot_product_attention()",
    ]
    for outer, inner in pairwise(nested):
        assert len(spans(outer)) == len(spans(inner)) == 2  # with the step that leads
        for (begin, end), (inner_begin, inner_end) in zip(spans(outer), spans(inner), strict=True):
            assert begin <= inner_begin <= inner_end <= end
    ranges = [event for event in events if event["cat"] == "user_annotation"]
    assert not [event["name"] for event in ranges if "record_function" in event["name"]]  # how a range is opened
    for one, other in combinations(ranges, 2):
        (begin, end), (other_begin, other_end) = sorted((each["ts"], each["ts"] + each["dur"]) for each in (one, other))
        assert other_begin >= end or other_end <= end or begin == other_begin, (one["name"], other["name"])
    products = next(kernel for kernel in trace.kernels if kernel.name == "aten::mm")
    assert "blocks.1.attention.qkv" in (products.layers or [])


def test_hooks_do_not_outlive_a_look(bench: Bench, net: Path) -> None:
    """A plain step after a look is as plain as one before it: nothing more is stamped or kept."""
    prepare(bench, net, GPT)
    bench.talk.layers(1)
    bench.talk.memory_by_layer()
    assert np.isfinite(bench.talk.losses(2)).all()
    assert len(bench.talk.layers(3).total_s) == 3
