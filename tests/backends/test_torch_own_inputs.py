"""A torch module with inputs of its own: what its file may say, what is refused in one line, and that it trains."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_jobs import machine, tiny_job
from workbench import Bench, use_module

from deepstone.backends.torch.own_inputs import read_spec, read_unit
from deepstone.backends.torch.own_module import describe
from deepstone.errors import UsageError
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import ModuleLoss, Tensors
from deepstone.models.load import LoadedModel
from deepstone.runner.conversation import BuildOptions, JobFailed
from deepstone.runner.job import Job
from deepstone.setups.axes import Value
from deepstone.setups.request import complete

PATH = Path("net.py")
TOKENS = {"shape": (6,), "type": "int64", "vocabulary": 11}

GPT = """\
import torch
from torch import nn
from torch.nn import functional as F

INPUTS = {
    "tokens": {"shape": (6,), "type": "int64", "vocabulary": 11},
    "keep": {"shape": (6,), "type": "bool"},
    "scale": {"value": 2.0},
    "wanted": {"shape": (6,), "type": "int64", "vocabulary": 11},
}
UNIT = "token"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.mix = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens, keep, *, scale):
        x = self.mix(self.embedding(tokens))[0] * keep[..., None] * scale
        return self.head(x)

def make():
    return Net()

def loss(outputs, batch):
    return F.cross_entropy(outputs.flatten(0, 1), batch["wanted"].flatten())

def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)
"""
# Its loss says how much neighbouring pixels differ: 2 for noise.
ROUGHNESS = """\
from torch import nn

INPUTS = {"input": (3, 16, 16)}

def make():
    return nn.Conv2d(3, 1, 1)

def loss(outputs, batch):
    image = batch["input"]
    return image.diff(dim=-1).square().mean() / image.var() + 0 * outputs.sum()
"""
OWN_LOSS = GPT[GPT.index("def loss") : GPT.index("def optimizer")]

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    before = (list(sys.path), sys.dont_write_bytecode)

    def write_text(text: str) -> Path:
        path = tmp_path / "net.py"
        path.write_text(text)
        return path

    yield write_text
    sys.path[:], sys.dont_write_bytecode = before
    for name in [name for name in sys.modules if name.startswith("deepstone_model_")]:
        del sys.modules[name]


class TestSpec:
    def test_a_shape_alone_is_of_floats(self) -> None:
        (only,) = read_spec(PATH, {"x": (3, 4)}).tensors
        made = only.make(5, seed=0)
        assert (made.shape, made.dtype) == ((5, 3, 4), np.float32)
        assert np.array_equal(made, only.make(5, seed=0))
        assert not np.array_equal(made, only.make(5, seed=1))

    def test_the_batch_may_stand_anywhere(self) -> None:
        (only,) = read_spec(PATH, {"x": (7, "batch", 2)}).tensors
        assert (only.make(5, seed=0).shape, only.shape) == ((7, 5, 2), (7, 2))

    def test_token_ids_and_booleans(self) -> None:
        spec = read_spec(PATH, {"ids": {**TOKENS, "shape": (100,)}, "mask": {"shape": (100,), "type": "bool"}})
        batch = spec.batch(20, seed=3)
        assert set(batch["ids"].flatten().tolist()) == set(range(11))
        assert str(batch["mask"].dtype) == "torch.bool"
        assert 0 < batch["mask"].float().mean().item() < 1

    def test_a_trial_holds_the_largest_id(self) -> None:
        spec = read_spec(PATH, {"ids": {**TOKENS, "vocabulary": 10**9}})
        assert spec.hardest_batch(2)["ids"].max().item() == 10**9 - 1

    def test_fixed_values(self) -> None:
        spec = read_spec(PATH, {"mask": {"shape": (2,), "type": "bool", "value": True}, "use_cache": {"value": False}})
        assert spec.batch(1, seed=0)["mask"].tolist() == [[True, True]]
        assert spec.constants == {"use_cache": False}

    @pytest.mark.parametrize(
        ("told", "why"),
        [
            ([1, 2], "INPUTS must name inputs and their shapes, as in"),
            ({}, "INPUTS must name inputs"),
            ({"x y": (3,)}, "'x y' is no name of an argument"),
            ({"x": "3x4"}, "INPUTS['x']: must be a shape"),
            ({"x": {"type": "bool"}}, "INPUTS['x']: needs a shape"),
            ({"x": {"shape": (3,), "kind": "bool"}}, "no such key 'kind'"),
            ({"x": {"shape": (3,), "type": "int32"}}, "no type 'int32' here; choose float32, int64"),
            (
                {"x": {"shape": (3,), "type": "int64"}},
                'int64 needs a vocabulary of 1 or more, as in "vocabulary": 1000',
            ),
            ({"x": {"shape": (3,), "type": "int64", "vocabulary": 0}}, "vocabulary of 1 or more"),
            ({"x": {"shape": (3,), "vocabulary": 5}}, "only int64 has a vocabulary"),
            ({"x": (3, 0)}, "a shape is whole numbers above 0"),
            ({"x": (3, 2.5)}, "a shape is whole numbers above 0"),
            ({"x": ("batch", "time")}, "the only size with a name is 'batch'"),
            ({"x": {"value": 3}}, "INPUTS has no tensor"),
        ],
    )
    def test_what_is_wrong_is_told_in_one_line(self, told: object, why: str) -> None:
        with pytest.raises(UsageError) as caught:
            read_spec(PATH, told)
        assert str(caught.value).startswith("net.py: INPUTS")
        assert why in str(caught.value)

    def test_a_unit_is_counted_by_the_first_ids(self) -> None:
        spec = read_spec(PATH, {"x": (9,), "ids": {**TOKENS, "shape": (4, 5)}})
        assert read_unit(PATH, "token", spec) == ("token", 20)
        assert read_unit(PATH, ("frame", 7), spec) == ("frame", 7)
        assert read_unit(PATH, None, spec) == ("", 0)

    @pytest.mark.parametrize("told", [3, "two words", ("token", 0), ("token", "many"), "token"])
    def test_units_that_are_none(self, told: object) -> None:
        with pytest.raises(UsageError, match=r"net\.py: UNIT"):
            read_unit(PATH, told, read_spec(PATH, {"x": (9,)}))


class TestDescribed:
    def test_what_the_controller_is_told(self, write: Write) -> None:
        told = describe(write(GPT), "make")
        assert (told["unit"], told["units_per_sample"], told["own_optimizer"]) == ("token", 6, True)
        assert told["values"] == 18
        assert told["inputs"].startswith("tokens batch×6 int64 below 11, keep batch×6 bool")

    @pytest.mark.parametrize(
        "returned",
        [
            "{'loss': LOSS}",
            "types.SimpleNamespace(loss=LOSS, logits=x)",
            "(LOSS, x)",
            "LOSS",
        ],
    )
    def test_a_module_may_give_its_loss(self, write: Write, returned: str) -> None:
        text = GPT.replace(OWN_LOSS, "").replace("keep, *, scale", "keep, wanted=None, *, scale")
        given = returned.replace("LOSS", "F.cross_entropy(x.flatten(0, 1), wanted.flatten())")
        text = text.replace("return self.head(x)", f"x = self.head(x)\n        return {given}")
        assert describe(write("import types\n" + text), "make")["units_per_sample"] == 6

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (
                GPT.replace("flatten())\n", "flatten(), reduction='none')\n"),
                "loss gives 12 numbers; a loss is one number",
            ),
            (
                GPT.replace("return F.cross", "return 0 * F.cross").replace("0 *", "float('nan') *"),
                "gives the loss nan",
            ),
            (GPT.replace("flatten())\n", "flatten()).item()\n"), "loss gives float; a loss is a tensor"),
            (GPT.replace("flatten())\n", "flatten()).detach()\n"), "a loss without gradient"),
            (GPT.replace(OWN_LOSS, ""), "INPUTS names wanted, which Net.forward(tokens, keep, scale) does not take"),
            (GPT.replace(OWN_LOSS, "loss = 3\n"), "loss is int; it must be a function"),
            (
                GPT.replace("Embedding(11", "Embedding(10"),
                "a vocabulary in INPUTS is larger than an embedding has rows",
            ),
            (
                GPT.replace("Linear(8, 11", "Linear(8, 10"),
                "a vocabulary in INPUTS is larger than the number of classes",
            ),
            (GPT.replace("tokens, keep, *, scale", "ids, mask"), "takes none of them; name them alike"),
            (GPT.replace('"keep"', '"wanted_too"'), "missing 1 required positional argument: 'keep'"),
            (
                GPT.replace("import torch\n", "import torch\nimport no_such_package\n", 1),
                "; install what it comes from for ",
            ),
            (
                GPT.replace(OWN_LOSS, "").replace(
                    '    "wanted": {"shape": (6,), "type": "int64", "vocabulary": 11},\n', ""
                ),
                "no loss among its outputs (a tensor 2×6×11); write a function loss(outputs, batch)",
            ),
        ],
    )
    def test_what_is_wrong_is_told_in_one_line(self, write: Write, text: str, why: str) -> None:
        path = write(text)
        with pytest.raises(UsageError) as caught:
            describe(path, "make")
        assert str(caught.value).startswith(str(path))
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)


def job(**axes: Value) -> Job:
    return tiny_job("torch", device="cpu", **axes)


def graph_of(path: Path, **told: Any) -> Graph:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    op = ModuleLoss(path=str(path), function="make", sha256=digest, weights=1, **told)
    return Graph(
        "net:make",
        [Layer(name="data", op=Tensors(spec="tokens", values=18)), Layer(name="module", op=op, inputs=("data",))],
    )


def use(bench: Bench, path: Path) -> None:
    use_module(bench, path, graph_of(path, unit="token", units_per_sample=6, own_optimizer=True))


class TestTrained:
    def test_the_seed_decides_weights_and_batch(self, bench: Bench, write: Write) -> None:
        use(bench, write(GPT))
        first = bench.losses(seed=3)
        assert first == bench.losses(seed=3)  # so the LSTM's own dropout is off, too
        assert first != bench.losses(seed=4)
        assert first[-1] < first[0]

    def test_its_own_optimizer_is_another(self, bench: Bench, write: Write) -> None:
        use(bench, write(GPT))
        own, usual = bench.losses(optimizer="own"), bench.losses()
        assert own[0] == usual[0]
        assert own[-1] < usual[-1]

    @pytest.mark.parametrize(
        "axes", [{"precision": "bf16-mixed"}, {"phase": "forward"}, {"phase": "gradient"}, {"input": "host"}]
    )
    def test_setups(self, bench: Bench, write: Write, axes: dict[str, Value]) -> None:
        use(bench, write(GPT))
        assert all(np.isfinite(bench.losses(**axes)))

    def test_images_are_like_photographs_where_a_check_asks_for_it(self, bench: Bench, write: Write) -> None:
        path = write(ROUGHNESS)
        use_module(bench, path, graph_of(path, units_per_sample=0))
        assert bench.losses(steps=1)[0] == pytest.approx(2, rel=0.1)
        bench.talk.build(options=BuildOptions(like_photographs=True))
        assert bench.talk.losses(1)[0] < 1.5

    def test_ids_have_no_gradient(self, bench: Bench, write: Write) -> None:
        use(bench, write(GPT))
        with pytest.raises(JobFailed, match="no input of this model is of floating-point numbers") as caught:
            bench.prepare(input_grad="on")
        assert caught.value.outcome == "unsupported"

    def test_an_optimizer_that_is_none(self, bench: Bench, write: Write) -> None:
        use(bench, write(GPT.replace("return torch.optim.AdamW(parameters, lr=0.01)", "return 3")))
        with pytest.raises(JobFailed, match=r"returned int, not a torch\.optim\.Optimizer"):
            bench.prepare(optimizer="own")


def test_the_file_alone_decides_the_graph(write: Write) -> None:
    path = write(GPT)
    graph = graph_of(path)
    assert Graph.from_worker_json(graph.to_worker_json()).sha == graph.sha
    write(GPT + "\n")
    assert graph_of(path).sha != graph.sha


def test_only_a_file_with_an_optimizer_has_its_own(write: Write) -> None:
    path = write(GPT)
    for has, graph in ((True, graph_of(path, own_optimizer=True)), (False, graph_of(path))):
        job = Job(
            model=LoadedModel(graph=graph, name=graph.name, source=str(path), file_sha256="0" * 64),
            request=complete({"framework": "torch", "optimizer": "own"}),
            environment=tiny_job("torch").environment,
            machine=machine(),
            command=("deepstone",),
        )
        assert (job.broken_rule is None) is has
