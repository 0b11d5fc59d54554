"""A user's own torch module: what is found out about it, how it trains, and what is refused in one line.

One worker serves the tests that train, one job after the other.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_jobs import tiny_job
from torch import nn
from workbench import Bench, use_module

from deepstone.backends.base import Unsupported
from deepstone.backends.torch.own_module import describe, own_module
from deepstone.errors import UsageError
from deepstone.graph.graph import Graph, Layer
from deepstone.graph.ops import Input, Module, SoftmaxCrossEntropy
from deepstone.runner.conversation import JobFailed
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

SHAPE = (3, 8, 8)
CLASSES = 6

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F

INPUT_SHAPE = (3, 8, 8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.drop = nn.Dropout(0.9)
        self.head = nn.Linear(4, 6)

    def forward(self, x):
        x = self.drop(self.body(x).mean((2, 3)))
        return RETURNS
"""
PLAIN = HEAD.replace("RETURNS", "self.head(x)") + "\ndef make():\n    return Net()\n"
TUPLE = HEAD.replace("RETURNS", "self.head(x), x") + "\ndef make():\n    return Net()\n"
DROPS = "F.dropout(x, training=self.training)"
FUNCTIONAL = PLAIN.replace("return self.head(x)", f"return self.head({DROPS})")
SCRIPTED = """
@torch.jit.script
def scripted(x):
    x = x + 0 * F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    return F.dropout(x, training=True)
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Files of a user; what running them leaves in this process is taken back."""
    before = (list(sys.path), set(sys.modules), sys.dont_write_bytecode)

    def write_text(text: str) -> Path:
        path = tmp_path / "net.py"
        path.write_text(text)
        return path

    yield write_text
    sys.path[:], sys.dont_write_bytecode = before[0], before[2]
    for name in [name for name in sys.modules if name not in before[1] and name.startswith("deepstone_model_")]:
        del sys.modules[name]


def op_of(path: Path, function: str = "make") -> Module:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Module(path=str(path), function=function, sha256=digest, features=CLASSES, weights=1)


def graph_of(op: Module) -> Graph:
    return Graph(
        "net:make",
        [
            Layer(name="data", op=Input(shape=SHAPE)),
            Layer(name="module", op=op, inputs=("data",)),
            Layer(name="loss", op=SoftmaxCrossEntropy(), inputs=("module",)),
        ],
    )


class TestDescribed:
    def test_a_module(self, write: Write) -> None:
        path = write(PLAIN)
        weights = 4 * 27 + 4 + 8 + 24 + 6
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        assert describe(path, "make") == {
            "sha256": digest,
            "input_shape": [3, 8, 8],
            "features": 6,
            "weights": weights,
        }

    def test_the_first_of_several_outputs_counts(self, write: Write) -> None:
        assert describe(write(TUPLE), "make")["features"] == 6

    def test_a_module_may_tell_its_own_shape(self, write: Write) -> None:
        path = write(PLAIN.replace("return Net()", "net = Net()\n    net.input_shape = (3, 5, 4)\n    return net"))
        assert describe(path, "make")["input_shape"] == [3, 5, 4]

    def test_the_usual_shape_is_taken_where_none_is_told(self, write: Write) -> None:
        assert describe(write(PLAIN.replace("INPUT_SHAPE", "_")), "make")["input_shape"] == [3, 224, 224]

    def test_frozen_weights_are_not_trained(self, write: Write) -> None:
        path = write(PLAIN.replace("return Net()", "net = Net()\n    net.body.requires_grad_(False)\n    return net"))
        assert describe(path, "make")["weights"] == 30

    def test_a_graph_in_a_file_that_imports_torch(self, write: Write) -> None:
        text = "import torch\nfrom deepstone.models.chains import cifarnet\ndef make():\n    return cifarnet()\n"
        assert describe(write(text), "make")["graph"]["name"] == "cifarnet"

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (PLAIN.replace("def make", "def mak"), "has no function 'make'; did you mean mak?"),
            (PLAIN.replace("return Net()", "return 3"), "make returned int; it must return a torch.nn.Module or"),
            (PLAIN.replace("return Net()", "return Net"), "make returned type; it must return"),
            (PLAIN.replace("self.head = nn", "self.head = missing.nn"), ", line 12: NameError: name 'missing'"),
            (PLAIN.replace("nn.Linear(4", "nn.Linear(5"), ", line 16: RuntimeError: mat1 and mat2"),
            (PLAIN.replace("nn.Linear(4", "nn.Linear(5"), "(on images 2x3x8x8)"),
            (PLAIN.replace("self.head(x)", "x.sum()"), "gives a single number for images 2x3x8x8"),
            (PLAIN.replace("self.head(x)", "self.body(x[:, :, None, None])"), ", line 16: "),
            (PLAIN.replace("self.head(x)", "{'logits': x}"), "gives dict; it must give a tensor of logits"),
            (PLAIN.replace("self.head(x)", "x.argmax(1)"), "gives Tensor; it must give a tensor of logits"),
            (PLAIN.replace("self.head(x)", "self.head(x)[:1]"), "gives 1x6 for images"),
            (PLAIN.replace("(3, 8, 8)", "(8, 8)"), "must be (channels, height, width), not (8, 8)"),
            (PLAIN.replace("(3, 8, 8)", "'3x8x8'"), "must be (channels, height, width), not '3x8x8'"),
            (PLAIN.replace("(3, 8, 8)", "(3, 8, 0)"), "must be (channels, height, width), not (3, 8, 0)"),
            (PLAIN.replace("return Net()", "return nn.Flatten()"), "has nothing to train"),
            ("import torch\n" + "def (\n", ", line 2: SyntaxError"),
            ("import torch\nimport no_such_module_anywhere\n", ", line 2: ModuleNotFoundError"),
            ("import torch, sys\nsys.exit(3)\n", ", line 2: SystemExit: 3"),
        ],
    )
    def test_what_is_wrong_is_told_with_the_line(self, write: Write, text: str, why: str) -> None:
        path = write(text)
        with pytest.raises(UsageError) as caught:
            describe(path, "make")
        message = str(caught.value)
        assert message.startswith(str(path))
        assert why in message
        assert "\n" not in message

    def test_images_of_the_usual_size_that_do_not_fit_come_with_the_remedy(self, write: Write) -> None:
        with pytest.raises(UsageError, match=r"write INPUT_SHAPE = \(C, H, W\) in the file"):
            describe(write(PLAIN.replace("INPUT_SHAPE", "_").replace("Conv2d(3,", "Conv2d(5,")), "make")


class TestPlaced:
    def test_dropout_layers_follow_the_axis(self, write: Write) -> None:
        for dropout in (False, True):
            module = own_module(op_of(write(PLAIN)), dropout=dropout).train()
            states = {name: each.training for name, each in module.inner.named_modules()}
            assert (states["body.1"], states["drop"]) == (True, dropout)
            assert not any(each.training for each in module.eval().modules())

    def test_a_file_that_was_changed_is_not_run(self, write: Write) -> None:
        op = op_of(write(PLAIN))
        write(PLAIN + "\n# changed\n")
        with pytest.raises(Unsupported, match="changed since"):
            own_module(op, dropout=False)


def job(**axes: Value) -> Job:
    return tiny_job("torch", device="cpu", **axes)


def use(bench: Bench, path: Path) -> None:
    """Have the bench make its jobs of this file from now on."""
    use_module(bench, path, graph_of(op_of(path)))


class TestTrained:
    def test_it_trains_from_the_weights_that_its_seed_gives(self, bench: Bench, write: Write) -> None:
        use(bench, write(PLAIN))
        first = bench.losses(seed=3)
        assert first == bench.losses(seed=3)
        assert first != bench.losses(seed=4)
        assert first[-1] < first[0]

    def test_its_arrays_go_by_their_dotted_names(self, bench: Bench, write: Write) -> None:
        use(bench, write(PLAIN))
        bench.prepare(phase="gradient", seed=3)
        gradients, weights = bench.arrays("gradients"), bench.arrays("parameters")
        assert list(gradients) == list(weights)
        assert list(weights) == [
            f"module/{name}"
            for name in ("body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.weight", "head.bias")
        ]
        assert "module/body.1.running_var" in bench.arrays("buffers")
        torch.manual_seed(3)
        assert np.array_equal(weights["module/body.0.weight"], nn.Conv2d(3, 4, 3).weight.detach().numpy())

    def test_of_several_outputs_the_first_is_trained(self, bench: Bench, write: Write) -> None:
        use(bench, write(PLAIN))
        plain = bench.losses(seed=3)
        use(bench, write(TUPLE))
        assert bench.losses(seed=3) == plain

    def test_evaluation_leaves_the_statistics_alone(self, bench: Bench, write: Write) -> None:
        use(bench, write(PLAIN))
        bench.prepare(phase="forward")
        assert np.all(bench.arrays("buffers")["module/body.1.running_var"] == 1)

    @pytest.mark.parametrize("axes", [{"precision": "bf16-mixed"}, {"layout": "nhwc"}, {"input_grad": "on"}])
    def test_setups(self, bench: Bench, write: Write, axes: dict[str, Value]) -> None:
        use(bench, write(PLAIN))
        assert bench.losses(**axes)

    @pytest.mark.parametrize(
        "way",
        [DROPS, "dropout(x, 0.5, self.training)", "F.feature_alpha_dropout(x[:, :, None])[:, :, 0]", "scripted(x)"],
    )
    def test_dropout_called_as_a_function_follows_the_axis(self, bench: Bench, write: Write, way: str) -> None:
        use(bench, write(PLAIN))
        without = bench.losses(seed=3)
        use(bench, write("from torch.nn.functional import dropout\n" + FUNCTIONAL.replace(DROPS, way) + SCRIPTED))
        assert bench.losses(seed=3) == without
        assert bench.losses(seed=3, dropout="on") != without
        assert bench.losses(seed=3) == without

    def test_attention_called_as_a_function_follows_the_axis(self, bench: Bench, write: Write) -> None:
        losses = {}
        for rate in ("0.0", "0.5"):
            call = f"F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p={rate})[0]"
            use(bench, write(FUNCTIONAL.replace(DROPS, call)))
            losses[rate] = bench.losses(seed=3)
        assert losses["0.0"] == losses["0.5"]
        assert bench.losses(seed=3, dropout="on") != losses["0.5"]

    def test_layers_of_a_graph_drop_after_a_module_that_did_not(self, bench: Bench, write: Write) -> None:
        use(bench, write(FUNCTIONAL))
        bench.prepare()
        bench._make_job = functools.partial(tiny_job, "torch", device="cpu")
        assert bench.losses(dropout="on", seed=3) != bench.losses(dropout="off", seed=3)

    def test_dropout_that_nothing_turns_off_is_not_passed_over(self, bench: Bench, write: Write) -> None:
        use(bench, write(FUNCTIONAL.replace(DROPS, "torch.dropout(x, 0.5, self.training)")))
        with pytest.raises(JobFailed, match="calls dropout in a way that dropout=off does not reach") as caught:
            bench.prepare()
        assert caught.value.outcome == "unsupported"
        assert bench.losses(dropout="on")
        assert bench.losses(phase="forward")

    def test_checkpointing_needs_layers(self, bench: Bench, write: Write) -> None:
        use(bench, write(PLAIN))
        with pytest.raises(JobFailed, match="a module of your own is only one") as caught:
            bench.prepare(checkpointing="on")
        assert caught.value.outcome == "unsupported"
