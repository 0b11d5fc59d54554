"""A file that is for torch's own Python: when that is asked, and what becomes of the answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from deepstone.absent import Absent
from deepstone.environments.environment import Environment
from deepstone.errors import UsageError
from deepstone.exchange.export import export
from deepstone.exchange.load import load_model
from deepstone.exchange.model_file import ModelFile
from deepstone.graph.graph import Graph
from deepstone.graph.ops import Module
from deepstone.results import environment as results
from deepstone.runner.job import Job, Machine
from deepstone.setups.request import complete

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_model.py"


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("import torch\n", True),
        ("import os, torch.nn as nn\n", True),
        ("from torch import nn\n", True),
        ("def make():\n    from torch.nn import Linear\n", True),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", True),
        ("import torchvision\n", False),
        ("from .torch import nn\n", False),
        ("torch = 'import torch'\n", False),
        ("def (", False),
        ("a = 1\0", False),
        ("(" * 3000, False),
        ("", False),
    ],
)
def test_who_imports_torch(text: str, does: bool) -> None:
    file = ModelFile(path=Path("net.py"), content=text.encode(), function="make")
    assert file.imports("torch") is does


@pytest.fixture(scope="module")
def example() -> Graph:
    model = load_model(f"{EXAMPLE}:make")
    assert (model.name, model.source) == ("my_model:make", str(EXAMPLE))
    assert model.file_sha256 == hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    return model.graph


def test_a_module_is_a_graph_of_one_layer(example: Graph) -> None:
    assert [layer.op.kind for layer in example.layers] == ["input", "module", "softmax_cross_entropy"]
    assert example.shapes["data"] == (3, 32, 32)
    assert example.classes == 10
    assert example.opaque == (example.layer("module"),)


def test_where_the_file_lies_does_not_change_what_it_computes(example: Graph) -> None:
    layers = [
        replace(layer, op=replace(layer.op, path="/elsewhere/my_model.py")) if isinstance(layer.op, Module) else layer
        for layer in example.layers
    ]
    assert Graph("moved", layers).sha == example.sha
    layers[1] = replace(layers[1], op=replace(layers[1].op, sha256="0" * 64))
    assert Graph("changed", layers).sha != example.sha


def job(graph: Graph, framework: str, version: str = "2.13.0") -> Job:
    environment = Environment(framework=framework, version=version, program=Path("/python"), lock={"python": "3.11"})
    return Job(
        model=replace(load_model("cifarnet"), graph=graph),
        request=complete({"framework": framework}),
        environment=environment,
        machine=Machine(description=results.Machine(gpus=[]), sha="0" * 64),
        command=("deepstone",),
    )


def test_only_torch_runs_it(example: Graph) -> None:
    assert job(example, "torch").broken_rule is None
    for framework in ("jax", "tensorflow"):
        reason = job(example, framework).broken_rule
        assert reason == "layer 'module' is a torch module of your own; only framework=torch runs it"
    old = job(example, "torch", "1.1.0").broken_rule
    assert old is not None
    assert old.endswith("only framework=torch runs it, and torch 1.1.0 is too old for it")


def test_what_it_costs_is_absent_and_not_zero(example: Graph) -> None:
    its = job(example, "torch")
    assert all(isinstance(cost, Absent) for cost in (its.flops, its.bytes, its.need_bytes))


def test_a_sibling_that_imports_torch_is_enough(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("from torch import nn\nwhole = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))\n")
    path = tmp_path / "net.py"
    path.write_text("INPUT_SHAPE = (3, 2, 2)\ndef make():\n    import parts\n    return parts.whole\n")
    assert load_model(f"{path}:make").graph.classes == 3


@pytest.mark.parametrize("elsewhere", [True, False])
def test_torch_for_another_python_may_have_what_ours_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Graph, elsewhere: bool
) -> None:
    asked: list[str] = []
    path = tmp_path / "net.py"
    path.write_text("import no_such_module_anywhere\nmake = lambda: no_such_module_anywhere.model()\n")

    def graph_of_module(_: ModelFile, framework: str) -> Graph:
        asked.append(framework)
        return example

    monkeypatch.setattr(ModelFile, "graph_of_module", graph_of_module)
    monkeypatch.setattr(ModelFile, "another_python", lambda _file, _framework: elsewhere)
    if elsewhere:
        assert load_model(f"{path}:make", frameworks=["jax", "torch@2.13.0"]).graph is example
        assert asked == ["torch@2.13.0"]
    else:
        with pytest.raises(UsageError, match="No module named 'no_such_module_anywhere'; install what it comes from"):
            load_model(f"{path}:make")
        assert not asked


def test_the_python_of_this_process_is_no_other() -> None:
    file = ModelFile(path=Path("net.py"), content=b"", function="make")
    assert not file.another_python("torch")
    assert not file.another_python("torch@0.0")


def test_a_process_that_dies_is_told_as_such(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.py"
    path.write_text("import os\nprint('hello')\ndef make():\n    import torch\n    os.abort()\n")
    with pytest.raises(UsageError, match=r"net\.py:make: the process that ran it was ended by signal 6"):
        load_model(f"{path}:make")
    assert "hello" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["json", "onnx", "prototxt"])
def test_it_is_not_written_to_a_file(tmp_path: Path, example: Graph, form: str) -> None:
    with pytest.raises(UsageError, match="my_model:make"):
        export(example, tmp_path / f"net.{form}", overwrite=False)
    assert not list(tmp_path.iterdir())


def test_a_graph_in_json_may_not_name_a_file_to_run(tmp_path: Path, example: Graph) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(example.to_json()))
    with pytest.raises(UsageError, match=r"a module is given as FILE\.py:FUNCTION, not in JSON"):
        load_model(str(path))
