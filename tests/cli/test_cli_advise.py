"""`deepstone advise` as a user types it: in a second, from rules and own runs, and plain where it knows nothing."""

from __future__ import annotations

import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from analysis.measured_runs import looks, rounds, run
from cli_kit import Cli
from factory import JsonRecord

from deepstone.hardware.machine import describe_machine, machine_sha
from deepstone.results import codec
from deepstone.results.identity import canonical_sha256
from deepstone.results.record import Draft
from deepstone.runner.job import Machine
from deepstone.store.store import Store

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DENSE = """from deepstone.graph.builder import Builder


def make():
    b = Builder("dense")
    x = b.flatten("flat", b.input("data", (3, 8, 8)))
    b.softmax_cross_entropy("loss", b.dense("logits", x, features=10))
    return b.build()
"""


OF_A_DATABASE = """
layer { name: "data" type: "Data" top: "data" top: "label" data_param { batch_size: 4 } }
layer {
  name: "conv1" type: "Convolution" bottom: "data" top: "conv1" convolution_param { num_output: 4 kernel_size: 3 }
}
layer { name: "ip1" type: "InnerProduct" bottom: "conv1" top: "ip1" inner_product_param { num_output: 10 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
"""


def add_here(store: Store, runs: list[JsonRecord]) -> None:
    here = machine_sha(describe_machine())
    for record in runs:
        record["identity"]["machine_sha"] = here
        draft = {key: value for key, value in record.items() if key != "id"}
        store.add(codec.convert({**draft, "job": canonical_sha256(record["identity"])}, Draft))


KEYS = {"setup", "gain", "over", "machines", "seen", "confidence", "gives_up", "checked", "records"}


def test_a_gpu_that_is_not_here_from_the_rules_alone(reader: Cli):
    found = reader("advise", "vgg16", "device=gpu", "batch=256", "--json").assert_ok().json
    assert (found["model"], found["facts"]["device"], found["facts"]["batch_norm"]) == ("vgg16", "gpu", False)
    best = found["advice"][0]
    assert set(best) == KEYS
    assert set(best["gain"]) == {"median", "low", "high", "n"}
    assert best["gain"]["low"] > 1
    assert best["machines"] >= 1
    assert best["records"]
    assert "bf16" in best["gives_up"][0]


def test_text_says_the_same_and_how_to_try_it(reader: Cli):
    said = reader("advise", "resnet50", "device=cpu", "batch=8").assert_ok().out
    found = reader("advise", "resnet50", "device=cpu", "batch=8", "--json").assert_ok().json["advice"]
    assert all(
        f"{number}  {' '.join(f'{k}={v}' for k, v in each['setup'].items())}" in said
        for number, each in enumerate(found, 1)
    )
    assert "deepstone compare resnet50 device=cpu batch=8 -- " in said


def test_it_fits_a_narrow_window(reader: Cli):
    said = reader.on_terminal("advise", "resnet50", "device=gpu", columns=60).assert_ok().out
    assert max(map(len, said.splitlines())) <= 60


def test_settings_that_are_given_are_kept(reader: Cli):
    found = reader("advise", "resnet50", "device=gpu", "precision=fp32", "--json").assert_ok().json
    assert found["asked"] == {"precision": "fp32"}
    assert found["advice"]
    assert all(
        each["setup"]["precision"] == "fp32" and each["over"] == {"precision": "fp32"} for each in found["advice"]
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["resnet5O"], "did you mean resnet50"),
        (["resnet50", "precison=fp32"], "did you mean precision"),
        (["resnet50", "batch=8,16"], "one value"),
        (["resnet50", "framework=mxnet"], "advise knows"),
        (["resnet50", "device=cpu", "precision=tf32"], "TF32"),
        (["resnet50", "device=cpu", "engine=cudnn"], "engine cudnn runs on a GPU only"),
        ([EXAMPLES / "my_model.py"], "my_model.py:make"),
        ([f"{EXAMPLES}/my_model.py:mke"], "did you mean make"),
        (["no_such_file.onnx"], "no file"),
    ],
    ids=str,
)
def test_mistakes_are_told_in_one_line(reader: Cli, words: list[object], told: str):
    reader("advise", *words).assert_error(2, told)


def test_without_a_store_there_are_no_runs_of_ones_own(cli: Cli):
    found = cli("advise", "alexnet-owt", "--json").assert_ok().json
    assert "there are no runs of your own of this machine in the store" in found["notes"]
    assert not any(each["confidence"] == "measured here" for each in found["advice"])


def test_own_runs_that_decide_nothing_are_no_missing_ones(cli: Cli):
    add_here(Store.open(cli.store), looks(100, device="cpu") + looks(150, device="cpu", layout="nhwc"))
    (note,) = [each for each in cli("advise", "alexnet-owt", "--json").assert_ok().json["notes"] if "your own" in each]
    assert "no two setups of one model were measured well enough" in note


def test_an_empty_folder_is_read_like_a_missing_one(cli: Cli):
    missing = cli("advise", "resnet50").assert_ok()
    cli.store.mkdir()
    assert cli("advise", "resnet50").assert_ok() == missing


def test_a_folder_that_is_no_store_is_refused(cli: Cli):
    cli.store.mkdir()
    (cli.store / "letter.txt").write_text("no store")
    assert cli("advise", "resnet50").code == 3


@pytest.mark.parametrize("model", ["my_model.py:make", "my_network.py:make", "alexnet.prototxt", "residual.json"])
def test_models_of_ones_own(reader: Cli, model: str):
    found = reader("advise", EXAMPLES / model, "device=gpu", "batch=64", "--json").assert_ok().json
    assert found["advice"]
    if model == "my_model.py:make":  # a torch module, which nobody looked into
        assert "batch_norm" not in found["facts"]
        assert not any("framework" in each["setup"] for each in found["advice"])


@pytest.mark.skipif(bool(Machine.here().gpus), reason="has a GPU")
def test_what_needs_a_gpu_is_refused_where_there_is_none(reader: Cli):
    reader("advise", "resnet50", "engine=cudnn").assert_error(2, "engine cudnn runs on a GPU only", "device=gpu asks")
    reader("advise", "resnet50", "engine=cudnn", "device=gpu").assert_ok()


def test_a_syntax_error_is_told_with_its_line(reader: Cli, tmp_path: Path):
    file = tmp_path / "net.py"
    file.write_text("import torch\n\ndef make(:\n    pass\n")
    reader("advise", f"{file}:make").assert_error(2, f"{file}, line 3: SyntaxError")


def test_what_was_shown_at_least_is_told_of_a_wide_interval(cli: Cli):
    """Others used the machine, and the turns still show which setup is faster."""
    runs = rounds(100, 60, 150, model="vgg16", device="cpu", batch=4, doubts=["other_load"])
    add_here(Store.open(cli.store), runs + rounds(900, 900, 500, model="vgg16", device="cpu", batch=4, layout="nhwc"))
    said = cli("advise", "vgg16", "device=cpu", "batch=4", "framework=torch").assert_ok().out
    assert re.search(r"\((1\.\d\d) – \d+\.\d\d\) .*; at least \1x is shown", said), said


def test_a_model_without_convolutions_has_no_layout(reader: Cli, tmp_path: Path):
    """Neither one of tokens, which nobody runs for advice, nor a network that is known."""
    dense = tmp_path / "dense.py"
    dense.write_text(DENSE)
    for model in (f"{EXAMPLES}/gpt.py:make", f"{dense}:make"):
        for device in ("cpu", "gpu"):
            result = reader("advise", model, f"device={device}", "--json").assert_ok()
            assert not [each for each in result.json["advice"] if "layout" in {*each["setup"], *each["over"]}]
        assert "layout" not in reader("advise", model, "device=cpu", "framework=torch", "batch=4").assert_ok().out
    found = reader("advise", f"{EXAMPLES}/my_model.py:make", "device=gpu", "batch=256", "--json").assert_ok().json
    assert any("layout" in each["setup"] for each in found["advice"]), "of images"


def test_a_class_is_a_model_as_in_other_commands(reader: Cli, tmp_path: Path):
    file = tmp_path / "net.py"
    file.write_text("from torch import nn\n\nclass Net(nn.Module):\n    pass\n\nmake = Net\n")
    for name in ("make", "Net"):
        assert reader("advise", f"{file}:{name}", "device=gpu", "--json").assert_ok().json["model"] == f"net:{name}"
    reader("advise", f"{file}:made", "device=gpu").assert_error(2, "did you mean make")


def test_where_nothing_is_known_it_says_so(reader: Cli):
    result = reader("advise", "resnet50", "device=cpu", "framework=jax").assert_ok()
    assert "Nothing is known to be faster" in result.out
    assert reader("advise", "resnet50", "device=cpu", "framework=jax", "--json").json["advice"] == []


@pytest.mark.parametrize("batch", [4, 8])
def test_own_runs_of_this_machine_come_first(cli: Cli, batch: int):
    """Where one's own runs say the contrary, rules are not asked; also those at another batch are one's own."""
    store = Store.open(cli.store)
    runs = rounds(100, 101, 99, model="vgg16", device="cpu", batch=4)
    runs += rounds(180, 181, 179, model="vgg16", device="cpu", batch=4, layout="nhwc")
    add_here(store, runs)
    found = (
        cli("advise", "vgg16", "device=cpu", f"batch={batch}", "framework=torch", "--json").assert_ok().json["advice"]
    )
    assert found[0]["setup"] == {"layout": "nhwc"}
    # What the rules say of other axes depends on this machine.
    assert not any("layout" in each["setup"] or each["confidence"] == "measured here" for each in found[1:])
    assert found[0]["confidence"] == "measured here"
    assert found[0]["gain"]["median"] == pytest.approx(1.8, rel=0.02)
    assert len(found[0]["records"]) == 6


def test_it_is_quick_and_imports_no_framework(reader: Cli):
    """Five times as long as to print the version; torch would take twenty times as long, however slow the machine."""
    program = (
        "import sys\nfrom deepstone.cli.main import main\n"
        "sys.argv = ['deepstone', 'advise', 'resnet152', 'device=gpu']\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    code = leaving.code\n"
        "heavy = {'torch', 'tensorflow', 'jax', 'matplotlib', 'plotly', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    version = [sys.executable, "-m", "deepstone", "--version"]
    plain_s, advice_s = zip(*(map(cpu_s, (version, [sys.executable, "-c", program])) for _ in range(2)), strict=True)
    assert min(advice_s) < 12 * min(plain_s), (advice_s, plain_s)


def cpu_s(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("resnet152", "deepstone "))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_it_refuses_a_size_of_images_as_tune_does(reader: Cli):
    for command in ("advise", "tune"):
        words = (command, f"{EXAMPLES / 'my_model.py'}:make", "--input", "3x64x64")
        reader(*words).assert_error(2, "has its own size of images")


def test_a_default_that_decides_nothing_was_measured_all_the_same(cli: Cli):
    """Against it a setup was measured apart, on a busy machine; against another setup in turns."""
    settings = {"model": "vgg16", "device": "cpu", "batch": 4}
    runs = rounds(100, 101, 99, **settings, doubts=["other_load"])
    runs += rounds(150, 151, 149, 100, 200, 150, **settings, layout="nhwc")
    runs += [
        run(speed, round=number, **settings, layout="nhwc", compile="default")
        for number, speed in ((4, 201), (5, 400), (6, 299))
    ]
    add_here(Store.open(cli.store), runs)
    said = cli("advise", "vgg16", "device=cpu", "batch=4").assert_ok().out
    assert " layout=nhwc; nothing is shown against the default itself" in said


def test_the_command_to_try_has_the_size_of_images_that_was_given(cli: Cli):
    """A Caffe file for training leaves it to a database."""
    file = cli.home / "net.prototxt"
    file.write_text(OF_A_DATABASE)
    words = (file, "device=cpu", "framework=torch", "batch=4", "--input", "3x32x32")
    model = cli("advise", *words, "--json").assert_ok().json["model"]
    runs = rounds(100, 101, 99, model=model, device="cpu", batch=4)
    add_here(Store.open(cli.store), runs + rounds(180, 181, 179, model=model, device="cpu", batch=4, layout="nhwc"))
    tried = next(line for line in cli("advise", *words).assert_ok().out.splitlines() if line.startswith("try it: "))
    plan = cli(*shlex.split(tried)[3:], "--dry-run", "--json").assert_ok().json
    assert plan[1]["requested"]["layout"] == "nhwc"
