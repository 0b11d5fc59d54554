"""Rules that rest on the convolution lab, with times that leave no doubt about the right answer."""

from __future__ import annotations

from typing import Any

import pytest
from papers_kit import ALEXNET, PASSES, apply, found, lab

KIM: dict[str, Any] = {"model": "alexnet-kim", "paper_batches": [32]}
FFT = {"FFT": "fft"}
NEEDED = 14  # passes of a training step: five layers, three passes, without the gradient of the image


def test_choice_is_the_slowest_kind_over_the_best_of_each() -> None:
    answer = apply("algorithm choice", found(lab({"oneDNN": 1.0, "im2col+GEMM": 4.0})), 4.0, **KIM)
    assert answer.word == "holds"
    assert answer.measured.median == pytest.approx(4.0)
    assert answer.findings == ("finding-0",)


def choice_with_an_error(precision: str) -> Any:
    times, errors = {"GEMM": 2.0, "IMPLICIT_PRECOMP_GEMM": 0.1, "FFT": 1.0}, {"IMPLICIT_PRECOMP_GEMM": 3e-4}
    return apply("algorithm choice", found(lab(times, formulas=FFT, errors=errors, precision=precision)), 4.0, **KIM)


def test_choice_compares_only_what_computes_in_fp32() -> None:
    """A fast product in TF32 says nothing about algorithms."""
    answer = choice_with_an_error("tf32")
    assert answer.measured.median == pytest.approx(2.0)
    assert answer.word == "weaker"


def test_choice_takes_what_computes_in_fp32_with_a_large_error_as_the_paper_did() -> None:
    answer = choice_with_an_error("fp32")
    assert answer.measured.median == pytest.approx(10.0)
    assert "with errors up to 1e-04 alone, so without GEMM on conv1" in answer.why
    assert ", 2.00 (" in answer.why


def test_a_kind_that_cannot_is_replaced_by_gemm() -> None:
    """As the frameworks of the paper did for conv1."""
    but_conv1 = {(layer, direction): 4.0 for layer in ALEXNET[1:] for direction in PASSES}
    answer = apply("algorithm choice", found(lab({"GEMM": 1.0, "FFT": but_conv1}, formulas=FFT)), 4.0, **KIM)
    assert answer.measured.median == pytest.approx((12 * 4 + 2) / NEEDED)
    assert "with FFT" in answer.why


def test_a_kind_that_can_do_little_is_no_choice() -> None:
    """NNPACK forward on one layer does not make a network of it; but it counts where it is the best."""
    slow, fast = {("conv2", "forward"): 99.0}, {("conv3", "forward"): 0.5}
    times = {"oneDNN": 1.0, "im2col+GEMM": 2.0, "FFT": slow, "WINOGRAD": fast}
    formulas = {**FFT, "WINOGRAD": "winograd-6x6"}
    answer = apply("algorithm choice", found(lab(times, formulas=formulas)), 4.0, **KIM)
    assert answer.measured.median == pytest.approx(2 * NEEDED / (NEEDED - 0.5))


def test_passes_that_were_not_timed_are_named() -> None:
    times = {(layer, part): 1.0 for layer in ALEXNET for part in PASSES if (layer, part) != ("conv5", "weight")}
    twice = {key: 2 * time for key, time in times.items()}
    answer = apply("algorithm choice", found(lab({"oneDNN": times, "im2col+GEMM": twice})), 4.0, **KIM)
    assert answer.measured.median == pytest.approx(2.0)
    assert "without conv5 (weight)" in answer.why


def test_a_batch_that_the_paper_has_and_we_have_not_is_named() -> None:
    answer = apply(
        "algorithm choice", found(lab({"oneDNN": 1.0, "GEMM": 4.0})), 4.0, model="alexnet-kim", paper_batches=[64, 256]
    )
    assert "the paper's 64 and 256 not measured here" in answer.why


def test_a_newer_lab_in_another_precision_changes_nothing() -> None:
    """It runs other algorithms: in TF32 a product may be ten times as fast."""
    times = {"GEMM": 4.0, "FFT": 1.0}
    in_fp32 = [lab(times, formulas=FFT, batch=batch) for batch in (32, 256)]
    newer = {"precision": "tf32", "started_at": "2026-12-24T18:00:00.000000Z"}
    in_tf32 = lab({"GEMM": 0.1, "FFT": 1.0}, formulas=FFT, batch=256, **newer)
    alone = apply("algorithm choice", found(*in_fp32), 4.0, **KIM)
    for labs in ([*in_fp32, in_tf32], [in_tf32, *in_fp32]):
        answer = apply("algorithm choice", found(*labs), 4.0, **KIM)
        assert answer.measured == alone.measured
        assert answer.setup == alone.setup


def test_a_precision_that_is_not_the_papers_is_named() -> None:
    answer = apply("algorithm choice", found(lab({"oneDNN": 1.0, "GEMM": 4.0}, precision="bf16")), 4.0, **KIM)
    assert "in bf16; the paper's fp32 not measured here" in answer.why


def test_no_lab() -> None:
    assert apply("algorithm choice", found(), 4.0, **KIM).word == "not testable here"


def ranks(**settings: Any) -> Any:
    formulas = {"FFT": "fft", "WINOGRAD": "winograd-2x2"}
    return apply(
        "algorithm ranks",
        found(lab(formulas=formulas, **settings)),
        overall="FFT",
        small="Winograd",
        small_layers=["conv3", "conv4", "conv5"],
        **KIM,
    )


def no_conv1(second: float, small: float) -> dict[tuple[str, str], float]:
    return {(layer, part): second if layer == "conv2" else small for layer in ALEXNET[1:] for part in PASSES}


def test_ranks_as_published() -> None:
    answer = ranks(seconds={"GEMM": 5.0, "FFT": no_conv1(0.1, 1.2), "WINOGRAD": no_conv1(5.0, 1.0)})
    assert answer.word == "holds"
    assert "forward on conv3, conv4, conv5" in answer.why


def test_ranks_of_which_one_is_turned_around() -> None:
    answer = ranks(seconds={"GEMM": 5.0, "FFT": no_conv1(0.1, 1.0), "WINOGRAD": no_conv1(5.0, 2.0)})
    assert answer.word == "weaker"


def test_winograd_with_a_large_error_counts_as_in_the_paper() -> None:
    times = {"GEMM": 5.0, "FFT": no_conv1(1.0, 1.0), "WINOGRAD": no_conv1(0.1, 0.9)}
    answer = ranks(seconds=times, errors={"WINOGRAD": 1e-3})
    assert answer.word == "reversed"
    assert "with errors up to 1e-04 alone, so without Winograd on conv2" in answer.why
    assert "takes 5.00" in answer.why


def test_ranks_without_a_library_that_has_fft() -> None:
    """A CPU: Winograd forward alone, nothing with FFT."""
    forward = {(layer, "forward"): 2.0 for layer in ("conv3", "conv4", "conv5")}
    answer = ranks(seconds={"oneDNN": 1.0, "im2col+GEMM": 3.0, "WINOGRAD": forward})
    assert answer.word == "reversed"
    assert "no library here was seen to run FFT" in answer.why


def test_ranks_without_either() -> None:
    assert ranks(seconds={"oneDNN": 1.0, "im2col+GEMM": 3.0}).word == "not testable here"


def test_the_pick_against_the_best() -> None:
    same = apply("heuristic against exhaustive", found(lab({"oneDNN": 1.0, "GEMM": 2.0})), far=1.25, **KIM)
    assert same.word == "holds"
    assert same.measured.median == 1.0
    worse = apply("heuristic against exhaustive", found(lab({"oneDNN": 1.0, "GEMM": 0.5})), far=1.25, **KIM)
    assert worse.word == "reversed"
    one = {("conv2", "forward"): 0.1}
    little = apply("heuristic against exhaustive", found(lab({"oneDNN": 1.0, "NNPACK": one})), far=1.25, **KIM)
    assert little.measured.median == pytest.approx(NEEDED / (NEEDED - 0.9), rel=1e-3)
    assert f"{NEEDED - 1} of {NEEDED}" in little.why
    assert "conv2 forward: NNPACK instead of oneDNN" in little.why


def test_the_gradient_of_the_image() -> None:
    answer = apply("gradient of the image", found(lab({"oneDNN": 1.0})), layer="conv1", **KIM)
    assert answer.measured.median == pytest.approx(2.0)
    assert answer.word == "holds"


def test_memory_by_algorithm_counts_the_largest_workspace_once() -> None:
    sizes = {"GEMM": 0, "FFT": 10**9}
    answer = apply(
        "memory by algorithm", found(lab({"GEMM": 1.0, "FFT": 1.0}, formulas=FFT, workspaces=sizes)), 1.2, **KIM
    )
    step = 62_378_344 * 12  # weights, gradients, momentum; and activations
    assert 1 < answer.measured.median < (step + 10**9) / step
    assert answer.measured.low == answer.measured.high
    assert answer.word == "holds"


def test_memory_over_gemm_is_a_range_where_there_are_several() -> None:
    """Which GEMM a paper or a library runs must not decide."""
    times = {"IMPLICIT_GEMM": 1.0, "GEMM": 2.0, "FFT": 1.0}
    sizes = {"IMPLICIT_GEMM": 0, "GEMM": 2 * 10**9, "FFT": 10**9}
    answer = apply("memory by algorithm", found(lab(times, formulas=FFT, workspaces=sizes)), 1.2, **KIM)
    assert answer.measured.low < 1 < answer.measured.median == answer.measured.high
    assert answer.word == "undecided"


def test_memory_by_formula_alone_is_not_judged() -> None:
    """A CPU: no library tells what its FFT takes."""
    finding = lab({"im2col+GEMM": 1.0})
    reference = {**finding["layers"][0]["results"][0], "kind": "reference", "formula": "fft", "workspace_bytes": 10**9}
    finding["layers"][1]["results"].append({**reference, "algorithm": "numpy fft", "time_s": {"absent": "a reference"}})
    answer = apply("memory by algorithm", found(finding), 1.2, **KIM)
    assert answer.word == "not testable here"
    assert answer.measured.median > 1.5


def over_batches(direct_small: float, direct_conv1: float) -> Any:
    """At batch 32 everything takes 8 s; at 4, GEMM takes its eighth."""
    large: dict[str, Any] = {"oneDNN": 8.0, "im2col+GEMM": 8.0}
    if direct_conv1 != 8.0:
        large["oneDNN"] = {
            (layer, part): direct_conv1 if (layer, part) == ("conv1", "weight") else 8.0
            for layer in ALEXNET
            for part in PASSES
        }
    small = lab({"oneDNN": direct_small, "im2col+GEMM": 1.0}, batch=4)
    given = {**KIM, "family": "direct", "other": "GEMM", "layer": "conv1", "direction": "weight"}
    return apply("algorithm over batches", found(lab(large), small), **given)


def test_direct_is_slow_in_conv1_and_scales_poorly() -> None:
    assert over_batches(direct_small=2.0, direct_conv1=16.0).word == "holds"


def test_direct_is_fast_in_conv1_but_scales_poorly() -> None:
    answer = over_batches(direct_small=2.0, direct_conv1=4.0)
    assert answer.word == "weaker"
    assert "from batch 32 to 4" in answer.why


def test_direct_is_fast_everywhere() -> None:
    assert over_batches(direct_small=0.5, direct_conv1=4.0).word == "reversed"


def test_direct_is_fast_in_conv1_and_scales_alike() -> None:
    """One part reversed and the other no longer to be seen leaves nothing of the claim, not a weaker one."""
    answer = over_batches(direct_small=1.0, direct_conv1=6.0)
    assert "within 0.95" in answer.why
    assert answer.word == "reversed"


def test_a_library_without_direct_convolution() -> None:
    given = {**KIM, "family": "direct", "other": "GEMM", "layer": "conv1", "direction": "weight"}
    answer = apply("algorithm over batches", found(lab({"GEMM": 1.0, "DIRECT": {}}, gpu="Test GPU")), **given)
    assert answer.word == "not testable here"
    assert "not supported" in answer.why
