"""`conv` as a user types it: a model, a shape by hand, several batches, words that make no sense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import Cli, script
from hypothesis import given
from hypothesis import strategies as st

from deepstone.cli.conv import padding, pair, sizes
from deepstone.errors import UsageError

BY_HAND = ("conv", "--shape", "8x10x10", "--filters", 16, "--kernel", "3x3", "--pad", 1, "batch=4")
QUICK = ("threads=1", "--budget", 0.02)
FAKE = script(algorithms={"slow": 0.004, "quick": 0.001, "never": "not today"}, noise=0.001)


def test_a_shape_by_hand_on_torch(measurer: Cli) -> None:
    answer = measurer(*BY_HAND, *QUICK, "--json").assert_ok().json
    assert (answer["schema"], answer["kind"], answer["batch"]) == (1, "conv", 4)
    assert (answer["device"], answer["precision"]) == ("cpu", "fp32")
    assert answer["command"][:7] == ["deepstone", "conv", "--shape", "8x10x10", "--filters", "16", "--kernel"]
    assert answer["environment"]["framework"]["name"] == "torch"
    assert answer["environment"]["machine"]["cpu"]
    (layer,) = answer["layers"]
    assert layer["shape"] == {
        "input": [8, 10, 10],
        "output": [16, 10, 10],
        "kernel": [3, 3],
        "stride": [1, 1],
        "pad": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 1,
    }
    for result in layer["results"]:
        assert result["kind"] in ("timed", "reference")
        assert result["relative_error"] == pytest.approx(0, abs=1e-4) or "absent" in result["relative_error"]
    timed = {(each["algorithm"], each["pass"]) for each in layer["results"] if "median" in each["time_s"]}
    for direction in ("forward", "data", "weight"):
        assert {("oneDNN", direction), ("im2col+GEMM", direction)} <= timed
        assert layer["best"][direction] in {name for name, each in timed if each == direction}
    assert answer["mix"]["picked_s"]["median"] > 0


def test_the_command_in_a_result_gives_it_again(measurer: Cli) -> None:
    words = (
        "conv",
        "--shape",
        "4x6x6",
        "--filters",
        4,
        "--kernel",
        "3x1",
        "--stride",
        2,
        "--pad",
        "1x0",
        "--groups",
        2,
    )
    first = measurer(*words, "batch=2", "framework=fake", "--json", DEEPSTONE_FAKE=FAKE).assert_ok().json
    again = measurer(*first["command"][1:], "--json", DEEPSTONE_FAKE=FAKE).assert_ok().json
    assert first["layers"][0]["shape"] == again["layers"][0]["shape"]
    assert first["command"] == again["command"]
    assert first["graph_sha"] == again["graph_sha"]


def test_the_size_of_images_is_given_where_a_file_leaves_it_open(measurer: Cli, tmp_path: Path) -> None:
    path = tmp_path / "open.prototxt"
    path.write_text(
        'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"\n'
        "  convolution_param { num_output: 4 kernel_size: 3 } }\n"
        'layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 5 } }\n'
    )
    words = ("conv", path, "batch=2", "framework=fake", "--json")
    found = measurer(*words, "--input", "2x9x8", DEEPSTONE_FAKE=FAKE).assert_ok().json
    assert found["layers"][0]["shape"]["input"] == [2, 9, 8]
    again = measurer(*found["command"][1:], "--json", DEEPSTONE_FAKE=FAKE).assert_ok().json
    assert again["graph_sha"] == found["graph_sha"]
    measurer("conv", "cifarnet", "--input", "3x8x8").assert_error(2, "--input", "its own size")
    measurer(*BY_HAND, "--input", "3x8x8").assert_error(2, "--input", "--shape")


def test_a_table_per_layer_and_what_the_mix_saves(measurer: Cli) -> None:
    done = measurer("conv", "cifarnet", "batch=2", "framework=fake", "phase=forward", DEEPSTONE_FAKE=FAKE).assert_ok()
    assert "conv1  3x32x32 → 32x32x32, kernel 5x5, pad 2" in done.out
    assert "quick" in done.out
    assert "not never: not today" in done.out
    assert "conv2, forward: quick takes" in done.out
    assert "would save" in done.out
    assert "75 %" in done.out


def test_several_batches(measurer: Cli) -> None:
    words = ("conv", "cifarnet", "batch=2,4", "framework=fake", "phase=forward")
    answer = measurer(*words, "--json", DEEPSTONE_FAKE=FAKE).assert_ok().json
    assert list(answer["batches"]) == ["2", "4"]
    assert answer["batches"]["4"]["command"][-1] == "phase=forward"
    assert "batch=4" in answer["batches"]["4"]["command"]
    told = measurer(*words, DEEPSTONE_FAKE=FAKE).assert_ok().out
    assert "as picked  best of each" in told


def test_a_batch_that_does_not_run_spares_the_others(measurer: Cli) -> None:
    full = script(algorithms={"one": 0.001}, memory={"base": 0, "per_sample": 1, "limit": 3})
    words = ("conv", "cifarnet", "framework=fake", "phase=forward")
    done = measurer(*words, "batch=2,4", "--json", DEEPSTONE_FAKE=full)
    assert done.code == 1
    assert done.json["batch"] == 2
    assert "deepstone: batch 4: fake 1: oom: " in done.err
    measurer(*words, "batch=4", DEEPSTONE_FAKE=full).assert_error(1, "oom: MemoryError: scripted: the device is full")


def test_a_heat_map(cli: Cli) -> None:
    done = cli(*BY_HAND, "framework=fake", "phase=forward", "-o", "map.svg", DEEPSTONE_FAKE=FAKE).assert_ok()
    assert "drew map.svg" in done.err
    drawn = (cli.home / "map.svg").read_text()
    assert drawn.startswith("<?xml")
    assert "quick" in drawn


def test_it_fits_the_window(measurer: Cli) -> None:
    done = measurer.on_terminal(*BY_HAND, "framework=fake", columns=60, DEEPSTONE_FAKE=FAKE)
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 60
    assert "Not shown in a window this narrow" in done.out


def test_equal_layers_are_measured_once_and_said_to_be(measurer: Cli) -> None:
    words = ("conv", "resnet110", "batch=1", "framework=fake", "phase=forward", "--budget", 0.02)
    done = measurer(*words, DEEPSTONE_FAKE=FAKE).assert_ok()
    assert " more, measured once" in done.out
    assert done.out.count("the same as") < 10


def test_an_algorithm_that_crashes_is_a_finding_and_no_failure_of_the_lab(measurer: Cli) -> None:
    faulty = script(algorithms={"one": 0.001, "two": 0.002}, fault={"at": "attempt one", "kind": "exit"})
    done = measurer(*BY_HAND, "framework=fake", "phase=forward", "--json", DEEPSTONE_FAKE=faulty).assert_ok()
    results = done.json["layers"][0]["results"]
    assert results[0]["time_s"]["absent"].startswith("crashed")
    assert "median" in results[1]["time_s"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "--shape 64x56x56"),
        (("batch=32",), 2, "conv needs a model"),
        (("alexnet-kmi",), 2, "alexnet-kim"),
        (("cifarnet", "--shape", "3x8x8", "--filters", 2), 2, "not both"),
        (("--shape", "3x8x8"), 2, "--filters"),
        (("--shape", "3x8", "--filters", 2), 2, "has 2 numbers and needs 3"),
        (("--shape", "3x8x-8", "--filters", 2), 2, "as in 64x56x56"),
        (("--shape", "3x8x8", "--filters", 2, "--kernel", "9x9"), 2, "smaller than the kernel"),
        (("--shape", "3x8x8", "--filters", 3, "--groups", 2), 2, "groups"),
        (("--shape", "3x8x8", "--filters", 2, "--kernel", "a"), 2, "--kernel a"),
        (("cifarnet", "--kernel", "5"), 2, "begins with --shape"),
        (("cifarnet", "--filters", "5"), 2, "begins with --shape"),
        (("cifarnet", "layout=nchw,nhwc"), 2, "only batch may list several"),
        (("cifarnet", "compile=default"), 2, "by themselves"),
        (("cifarnet", "optimizer=adam"), 2, "by themselves"),
        (("cifarnet", "engine=native"), 2, "tries every engine"),
        (("cifarnet", "algorithm=benchmark"), 2, "tries every algorithm"),
        (("cifarnet", "-o", "nowhere/x.svg"), 2, "no folder"),
        (("cifarnet", "-o", "x.txt"), 2, "must end in .svg, .png or .html"),
        (("cifarnet", "device=cpu", "precision=tf32"), 1, "unsupported: TF32"),
        (("cifarnet", "framework=fake"), 1, "fake 1: unsupported: this framework does not let an algorithm be chosen"),
        (("cifarnet", "framework=torch@0.1"), 4, "torch@0.1"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_words_that_make_no_sense(measurer: Cli, words: tuple[str, ...], code: int, told: str) -> None:
    measurer("conv", *words).assert_error(code, told)


def test_a_gpu_that_is_not_there(measurer: Cli) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    measurer("conv", "cifarnet", "device=gpu").assert_error(4, "device gpu:0")


@given(numbers=st.lists(st.integers(1, 2**20), min_size=3, max_size=3), mark=st.sampled_from("xX×,"))
def test_sizes_are_read_as_they_are_written(numbers: list[int], mark: str) -> None:
    assert sizes("--shape", mark.join(map(str, numbers)), counts=(3,), example="1x2x3") == tuple(numbers)


@given(text=st.text(max_size=30).filter(lambda text: not re.fullmatch("[0-9]+([xX×,][0-9]+)?", text.strip())))
def test_any_other_text_is_told_in_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--shape .*as in 3x3$") as told:
        sizes("--shape", text, counts=(1, 2), example="3x3")
    assert "\n" not in str(told.value)


def test_what_one_number_stands_for() -> None:
    assert pair("--kernel", "3", example="3x3") == (3, 3)
    assert padding("--pad", "1") == (1, 1, 1, 1)
    assert padding("--pad", "1x2") == (1, 1, 2, 2)
    assert padding("--pad", "0x1x2x3") == (0, 1, 2, 3)
