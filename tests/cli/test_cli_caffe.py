"""`caffe time`: the lines that Caffe prints, its options, and what is said when something is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Cli, Result
from report.made_up import layers_result

from deepstone.cli.caffe import caffe_lines
from deepstone.results.codec import as_bare_finding, convert
from deepstone.results.findings import Finding
from deepstone.runner.layers.caffe_time import CaffeTime

TINY = """\
name: "tiny"
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 4 dim: 3 dim: 8 dim: 8 } shape { dim: 4 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "a_long_name/pool" type: "Pooling" bottom: "conv1" top: "pool"
        pooling_param { kernel_size: 2 stride: 2 } include { phase: TRAIN } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
        inner_product_param { num_output: 10 } include { phase: TRAIN } }
layer { name: "fc" type: "InnerProduct" bottom: "conv1" top: "fc"
        inner_product_param { num_output: 10 } include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""
NUMBER = r"[0-9.e+-]+"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("caffe") / "tiny.prototxt"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def timed(measurer: Cli, tiny: Path) -> Result:
    return measurer("caffe", "time", "-model", tiny, "-iterations", 3, "threads=1", "framework=torch").assert_ok()


def numbers(**changes: Any) -> CaffeTime:
    """Made up: all that Caffe prints."""
    found: dict[str, Any] = {
        "iterations": 2,
        "iteration_s": [0.123, 0.1234567],
        "layers": [
            {"name": "conv1", "forward_s": 0.0123, "backward_s": 0.0456789},
            {"name": "inception_3a/1x1", "forward_s": 1e-7, "backward_s": 0.0},
        ],
        "forward_s": 0.0123001,
        "backward_s": 0.0456789,
        "forward_backward_s": 0.12322835,
        "total_s": 1234.5678,
        "in_place": True,
        "why_not_in_place": "",
    }
    return convert({**found, **changes}, CaffeTime)


def finding() -> Finding:
    return as_bare_finding({**layers_result(batch=16, framework="torch@2.0"), "method": "stamps"})


def test_lines_are_caffe_s() -> None:
    assert list(caffe_lines(finding(), numbers())) == [
        "*** Benchmark begins ***",
        "Testing for 2 iterations.",
        "Iteration: 1 forward-backward time: 123 ms.",
        "Iteration: 2 forward-backward time: 123.457 ms.",
        "Average time per layer: ",
        "     conv1\tforward: 12.3 ms.",
        "     conv1\tbackward: 45.6789 ms.",
        "inception_3a/1x1\tforward: 0.0001 ms.",
        "inception_3a/1x1\tbackward: 0 ms.",
        "Average Forward pass: 12.3001 ms.",
        "Average Backward pass: 45.6789 ms.",
        "Average Forward-Backward: 123.228 ms.",
        "Total Time: 1.23457e+06 ms.",
        "*** Benchmark ends ***",
        "(torch 2.0 on cpu, batch 16; layers in place (stamps), in other steps than the iterations; "
        "passes are sums of layers)",
    ]


def test_the_last_line_says_when_layers_ran_by_themselves() -> None:
    last = list(caffe_lines(finding(), numbers(in_place=False, why_not_in_place="it has no profiler")))[-1]
    assert "each layer isolated (it has no profiler)" in last
    assert "not the iteration" in last


def test_a_run(timed: Result) -> None:
    lines = timed.out.splitlines()
    layers = ["conv1", "relu1", "a_long_name/pool", "flatten", "fc", "loss"]
    assert lines[:2] == ["*** Benchmark begins ***", "Testing for 3 iterations."]
    for number, line in enumerate(lines[2:5], 1):
        assert re.fullmatch(f"Iteration: {number} forward-backward time: {NUMBER} ms\\.", line)
    assert lines[5] == "Average time per layer: "
    rows = lines[6 : 6 + 2 * len(layers)]
    assert [row.split("\t")[0].strip() for row in rows[::2]] == layers
    for row, name in zip(rows[::2], layers, strict=True):
        assert re.fullmatch(f" *{name}\tforward: {NUMBER} ms\\.", row)
    assert all(re.fullmatch(f" *\\S+\tbackward: {NUMBER} ms\\.", row) for row in rows[1::2])
    totals = ["Average Forward pass", "Average Backward pass", "Average Forward-Backward", "Total Time"]
    assert [line.split(":")[0] for line in lines[6 + 2 * len(layers) : -2]] == totals
    assert lines[-2] == "*** Benchmark ends ***"
    assert "batch 4; layers in place" in lines[-1]


def test_sums_add_up(timed: Result) -> None:
    def ms(pattern: str) -> list[float]:
        return [float(found) for found in re.findall(f"{pattern}: ({NUMBER}) ms", timed.out)]

    iterations = ms(r"Iteration: \d+ forward-backward time")
    assert ms("Total Time") == pytest.approx([sum(iterations)], rel=1e-4)
    assert ms("Average Forward-Backward") == pytest.approx([sum(iterations) / 3], rel=1e-4)
    assert ms("Average Forward pass") == pytest.approx([sum(ms("\tforward"))], rel=1e-4)
    assert ms("Average Backward pass") == pytest.approx([sum(ms("\tbackward"))], rel=1e-4)
    assert all(taken > 0 for taken in iterations)


def test_json_in_phase_test(measurer: Cli, tiny: Path) -> None:
    words = ("caffe", "time", f"-model={tiny}", "--iterations=2", "-phase", "TEST", "-engine", "CAFFE", "batch=2")
    found = measurer(*words, "framework=torch", "threads=1", "--json").assert_ok().json
    assert (found["outcome"], found["kind"], found["model"]) == ("ok", "layers", "tiny")
    assert (found["workload"]["batch"], found["workload"]["phase"]) == (2, "forward")
    assert found["setup"]["requested"]["engine"] == "native"
    assert found["setup"]["requested"]["device"] == "cpu"
    numbers = found["caffe_time"]
    assert numbers["iterations"] == len(numbers["iteration_s"]) == 2
    assert [layer["name"] for layer in numbers["layers"]] == ["conv1", "relu1", "flatten", "fc", "loss"]
    assert numbers["layers"][0]["forward_s"] > 0
    assert "absent" in numbers["backward_s"]
    command = found["command"]
    assert command[:5] == ["deepstone", "caffe", "time", "-model", str(tiny)]
    assert {"-phase", "TEST", "engine=native", "batch=2", "-iterations", "2"} <= set(command)


def test_layers_by_themselves_where_a_step_cannot_be_looked_into(measurer: Cli, tiny: Path) -> None:
    words = ("caffe", "time", "-model", tiny, "-iterations", 1, "checkpointing=on", "threads=1", "framework=torch")
    lines = measurer(*words).assert_ok().out.splitlines()
    assert "each layer isolated (with checkpointing=on" in lines[-1]
    assert re.fullmatch(f" *conv1\tbackward: {NUMBER} ms\\.", lines[5])
    assert float(lines[5].split()[2]) > 0


def test_the_size_of_images_is_given_where_the_file_leaves_it_open(measurer: Cli, tmp_path: Path) -> None:
    path = tmp_path / "open.prototxt"
    path.write_text(
        'layer { name: "data" type: "Data" top: "data" top: "label" data_param { batch_size: 4 } }\n'
        'layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 5 } }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" }\n'
    )
    words = ("caffe", "time", "-model", path, "-iterations", 1, "framework=fake")
    measurer(*words).assert_error(2, f"{path}, line 1:", "--input 3x224x224")
    measurer(*words, "-input", "28x28").assert_error(2, "--input 28x28", "3x224x224")
    found = measurer(*words, "-input", "1x6x7", "--json").assert_ok().json
    command = found["command"]
    assert command[command.index("--input") + 1] == "1x6x7"
    assert found["workload"]["batch"] == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], ["missing option '-model'"]),
        (["-model", "nowhere.prototxt"], ["no file", "nowhere.prototxt"]),
        (["-modle", "x.prototxt"], ["no such option: --modle", "-model"]),
        (["-model", "TINY", "-iterations", "0"], ["-iterations"]),
        (["-model", "TINY", "-iterations", "many"], ["-iterations"]),
        (["-model", "TINY", "-engine", "MKLDN"], ["-engine 'MKLDN'", "MKLDNN"]),
        (["-model", "TINY", "-gpu", "0,1"], ["-gpu '0,1'", "one GPU"]),
        (["-model", "TINY", "-gpu", "0", "device=cpu"], ["give one of them"]),
        (["-model", "TINY", "-engine", "CAFFE", "engine=onednn"], ["give one of them"]),
        (["-model", "TINY", "-phase", "VALIDATE"], ["-phase 'VALIDATE'", "TRAIN nor TEST"]),
        (["-model", "TINY", "phase=train"], ["-phase"]),
        (["-model", "TINY", "batch=1,2"], ["batch: caffe time takes one value"]),
        (["-model", "TINY", "bach=1"], ["bach: no such axis"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_is_wrong_is_told_in_a_line(measurer: Cli, tiny: Path, words: list[str], told: list[str]) -> None:
    measurer("caffe", "time", *[str(tiny) if word == "TINY" else word for word in words]).assert_error(2, *told)


def test_a_file_that_is_no_network(measurer: Cli, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "x"\n type: "Crop" bottom: "y"')
    measurer("caffe", "time", "-model", path).assert_error(2, f"{path}, line 2: expected a field's name or '}}'")
    measurer("models", path).assert_error(2, f"{path}, line 2:")


def test_a_job_that_cannot_run_is_told(measurer: Cli, tiny: Path) -> None:
    done = measurer("caffe", "time", "-model", tiny, "-engine", "MKLDNN", "device=gpu")
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("deepstone: unsupported: engine onednn runs on a CPU only")


def test_without_a_command_there_is_help(measurer: Cli) -> None:
    done = measurer("caffe")
    assert (done.code, done.out) == (2, "")
    assert "Usage: deepstone caffe" in done.err
