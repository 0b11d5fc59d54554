"""`verify`, and what a comparison across frameworks does when they turn out not to compute the same."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from cli_kit import Cli

from deepstone.environments.environment import Environment
from deepstone.environments.manifest import write_manifest
from deepstone.environments.places import Place

PLANTED = Path(__file__).parents[1] / "checks" / "planted"
WRONG = f"torch@{metadata.version('torch').partition('+')[0]}-wrong"


@pytest.fixture(scope="module")
def with_a_wrong_torch(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Cli:
    """A user who adopted the same interpreter once more; there the lowering has an error planted in it."""
    home = tmp_path_factory.mktemp("verify")
    cli = Cli(store=home / "store", cache=cache, home=home)
    cli = replace(cli, more={"DEEPSTONE_ENVIRONMENTS": str(home / "environments")})
    cli("env", "add", "torch", "--python", sys.executable, "--name", WRONG).assert_ok()
    (manifest,) = (home / "environments").rglob("environment.json")
    content = json.loads(manifest.read_text())
    content["variables"] = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT": "padding"}
    content["lock"]["planted"] = "padding"
    manifest.write_text(json.dumps(content))
    return cli


def test_what_it_answers(reader: Cli) -> None:
    answer = reader("verify", "cifarnet", "framework=torch", "threads=1", "--json").assert_ok().json
    assert answer["ok"] is True
    assert (answer["model"], answer["batch"], answer["phase"]) == ("cifarnet", 2, "train")
    losses = answer["reference"]["loss"]
    assert len(losses) == 5
    found = answer["frameworks"]["torch"]
    assert found["ok"] is True
    assert found["loss"] == pytest.approx(losses, rel=1e-8)
    assert found["worst"].keys() == {"layer", "what", "relative_error", "tolerance"}
    assert found["worst"]["relative_error"] <= found["worst"]["tolerance"]
    assert found["layers"]["checked"] == 14
    assert found["layers"]["worst"]["relative_error"] > 0
    gradients, loss = found["float64"]
    assert 0 < gradients["relative_error"] < gradients["tolerance"] == 1e-9
    assert 0 <= loss["relative_error"] < loss["tolerance"] == 1e-8
    assert 0 < found["measured"]["relative_error"] < found["measured"]["tolerance"]


def test_the_first_layer_that_disagrees_is_named(with_a_wrong_torch: Cli) -> None:
    words = ("verify", "cifarnet", f"framework=torch,{WRONG}", "phase=gradient")
    done = with_a_wrong_torch(*words)
    assert done.code == 1
    right, wrong = (line for line in done.out.splitlines() if line.startswith("torch") and "  14  " in line)
    assert right.endswith("yes")
    assert wrong.endswith("NO")
    assert f"{WRONG} does not compute the same: layer conv1, output" in done.out


def test_what_does_not_train_is_left_out_unless_it_is_asked_for(tmp_path: Path, cache: Path) -> None:
    place = Place(root=tmp_path / "environments", name="onnxruntime@1.0.0")
    place.folder.mkdir(parents=True)
    there = Environment(
        framework="onnxruntime",
        version="1.0.0",
        name=place.name,
        program=Path(sys.executable),
        lock={"python": "3.11.0"},
        kind="adopted",
    )
    write_manifest(place, there, recipe_sha="", size_bytes=0)
    cli = Cli(store=tmp_path / "store", cache=cache, home=tmp_path, more={"DEEPSTONE_ENVIRONMENTS": str(place.root)})
    why = "ONNX Runtime runs networks and does not train them; use phase=forward"
    done = cli("verify", "cifarnet", "phase=gradient", "threads=1").assert_ok()
    assert f"onnxruntime is left out: {why}" in done.err.splitlines()
    assert "torch: the same cifarnet" in done.out
    asked = cli("verify", "cifarnet", "framework=onnxruntime")
    assert asked.code == 1
    assert f"onnxruntime could not be checked: unsupported: {why}" in asked.out


def test_a_comparison_of_what_is_not_the_same_is_refused(with_a_wrong_torch: Cli) -> None:
    words = ("compare", "cifarnet", "framework=torch", "--", f"framework={WRONG}")
    answer = with_a_wrong_torch(*words, "--json")
    assert answer.code == 1
    for key in ("a", "b", "ratio", "verdict"):
        assert "B: layer conv1" in answer.json[key]["absent"]
    assert answer.json["sameness"]["a"]["ok"] is True
    assert answer.json["sameness"]["b"]["first_disagreement"]["layer"] == "conv1"
    told = with_a_wrong_torch(*words)
    assert told.code == 1
    assert told.out.startswith("not compared, because they are not shown to compute the same; B: layer conv1")
    assert with_a_wrong_torch.runs() == []


def test_runs_of_what_is_not_the_same_get_no_ratio(with_a_wrong_torch: Cli) -> None:
    words = ("run", "cifarnet", f"framework=torch,{WRONG}", "batch=4", "--budget", 0.3, "--store", "runs")
    done = with_a_wrong_torch(*words).assert_ok()
    assert "against torch" in done.out
    assert "not the same" in done.out
    assert "not compared: layer conv1, output" in done.out


@pytest.mark.deep
def test_without_frameworks_it_takes_those_that_are_there(with_a_wrong_torch: Cli) -> None:
    answer = with_a_wrong_torch("verify", "cifarnet", "phase=forward", "batch=1", "--json").json
    assert {name: found["ok"] for name, found in answer["frameworks"].items()} == {"torch": True, WRONG: False}
    assert answer["batch"] == 1


def test_what_cannot_be_done_is_told_of_each(with_a_wrong_torch: Cli) -> None:
    done = with_a_wrong_torch("verify", "cifarnet", "framework=torch", "engine=xla", "--json")
    assert done.code == 1
    assert "unsupported" in done.json["frameworks"]["torch"]["failure"]
    assert done.json["frameworks"]["torch"]["ok"] is False


def test_what_no_framework_can_do_is_told_before_anything_is_computed(reader: Cli) -> None:
    words = ("verify", "cifarnet", "framework=torch", "processes=2", "collective=ring")
    answer = reader(*words, "--json")
    assert answer.code == 1
    assert answer.json["ok"] is False
    assert "absent" in answer.json["reference"]
    assert answer.json["parallel"]["data"]["ok"] is False
    told = answer.json["parallel"]["data"]["frameworks"]["torch"]["unsupported"]
    assert told.startswith("unsupported: ")
    done = reader(*words)
    assert (done.code, done.out) == (1, f"torch: {told}\n")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("cifarnet", "batch=1,2"), 2, "batch: verify takes one value"),
        (("cifarnte",), 2, "cifarnet"),
        (("cifarnet", "framework=torhc"), 2, "torch"),
        (("cifarnet", "framework=torch@0.1"), 4, "torch@0.1"),
        ((), 2, "MODEL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_usage(reader: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    reader("verify", *words).assert_error(code, told)


def test_with_no_framework_at_all(torchless: Cli) -> None:
    torchless("verify", "cifarnet").assert_error(4, "no framework is installed", "deepstone env add")


@pytest.mark.parametrize("word", ["optimizer=adam", "dropout=on"])
def test_what_no_check_looks_at_is_refused_and_not_dropped(reader: Cli, word: str) -> None:
    reader("verify", "cifarnet", "framework=torch", word).assert_error(2, word, "leave it out")
