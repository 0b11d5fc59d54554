"""`deepstone memory` and `doctor --peaks` as a user types them."""

from __future__ import annotations

import pytest
from cli_kit import Cli, script
from hypothesis import given
from hypothesis import strategies as st

from deepstone.cli.memory import size_bytes
from deepstone.errors import UsageError

MIB = 2**20
GPU = {"effective": {"device": "gpu:0"}, "memory": {"base": 100 * MIB, "per_sample": MIB, "limit": 1000 * MIB}}


def test_json_holds_every_layer_and_the_measured_peak(measurer: Cli):
    result = measurer("memory", "cifarnet", "framework=fake", "batch=16", "--json", DEEPSTONE_FAKE=script(**GPU))
    report = result.assert_ok().json
    assert {"schema", "kind", "model", "command", "batch", "phase", "setup", "predicted", "layers"} <= set(report)
    assert (report["kind"], report["model"], report["batch"]) == ("memory", "cifarnet", 16)
    assert report["measured_peak_bytes"] == 116 * MIB
    assert report["command"][:3] == ["deepstone", "memory", "cifarnet"]
    assert len(report["layers"]) == 15
    assert report["predicted"]["total_bytes"] == sum(
        layer[f"{kind}_bytes"]
        for layer in report["layers"]
        for kind in ("parameters", "gradients", "optimizer", "activations")
    )


def test_a_table_fits_the_window_and_says_what_was_measured(measurer: Cli):
    result = measurer.on_terminal(
        "memory", "resnet50", "framework=fake", columns=70, DEEPSTONE_FAKE=script(**GPU)
    ).assert_ok()
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 70
    assert any("others" in line for line in lines)  # deep networks show their large layers
    assert "at its peak" in result.out
    assert "predicted" in result.out


def test_all_layers_when_asked(measurer: Cli):
    result = measurer("memory", "resnet50", "framework=fake", "--all", DEEPSTONE_FAKE=script(**GPU)).assert_ok()
    assert "others" not in result.out
    assert len(result.out.splitlines()) > 170


def test_the_largest_batch(measurer: Cli):
    words = ("memory", "cifarnet", "framework=fake", "batch=16", "--largest-batch")
    result = measurer(*words, DEEPSTONE_FAKE=script(**GPU)).assert_ok()
    assert "largest batch 900 (predicted 900); 901 does not fit" in result.out
    assert "901 oom" in result.out
    report = measurer(*words, "--memory", "200MiB", "--json", DEEPSTONE_FAKE=script(**GPU)).assert_ok().json
    assert report["largest_batch"]["confirmed"] == 100
    assert report["largest_batch"]["limit_bytes"] == 200 * MIB
    assert report["command"][-3:] == ["--largest-batch", "--memory", str(200 * MIB)]


def test_a_batch_that_does_not_fit_is_an_outcome(measurer: Cli):
    words = ("memory", "cifarnet", "framework=fake", "batch=1000")
    failed = measurer(*words, "--json", DEEPSTONE_FAKE=script(**GPU))
    assert failed.code == 1
    assert failed.json["outcome"] == "oom"
    assert "full" in failed.json["failure"]["reason"]
    searched = measurer(*words, "--largest-batch", "--json", DEEPSTONE_FAKE=script(**GPU))
    assert searched.json["largest_batch"]["confirmed"] == 900
    assert searched.json["largest_batch"]["tried"][0]["outcome"] == "oom"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--memory", "2GiB"), "--largest-batch"),
        (("--largest-batch", "--memory", "much"), "much: not a size of memory"),
        (("--largest-batch", "--memory", "0"), "from 1 byte"),
        (("batch=1,2",), "memory takes one value"),
        (("batch=none",), "batch=none"),
    ],
)
def test_bad_words_are_told_in_one_line(measurer: Cli, words: tuple[str, ...], said: str):
    measurer("memory", "cifarnet", "framework=fake", *words).assert_error(2, said)


def test_more_than_the_host_has_is_refused(measurer: Cli):
    words = ("memory", "cifarnet", "framework=fake", "--largest-batch", "--memory", "1000TiB")
    measurer(*words).assert_error(2, "is not tried", "give at most")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("2GiB", 2**31), ("500MB", 500_000_000), ("1.5 g", 1_500_000_000), ("3k", 3000), ("1 TiB", 2**40)],
)
def test_sizes_as_people_write_them(text: str, value: int):
    assert size_bytes(text) == value


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_refused(text: str):
    try:
        value = size_bytes(text)
    except UsageError as error:
        said = str(error)
    else:
        assert 1 <= value <= 2**50
        return
    assert "\n" not in said


@given(st.integers(1, 2**50))
def test_a_number_of_bytes_is_itself(value: int):
    assert size_bytes(str(value)) == pytest.approx(value, rel=1e-15)
