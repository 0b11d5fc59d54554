"""A tuned setup is the same training, or it is not, or that is not proven. Real torch workers, planted faults."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from check_jobs import check_job
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.checks.same_training import altered, fitting_batch, fitting_plan, same_training, summary
from deepstone.environments.environment import Environment
from deepstone.environments.find import find_environment
from deepstone.exchange.load import load_model
from deepstone.graph.builder import Builder
from deepstone.graph.graph import Graph
from deepstone.results.sameness import Comparable
from deepstone.results.tune import SameLevel, SameMeasure, SameSetup
from deepstone.runner.job import Job
from deepstone.setups.axes import Value

PLANTED = Path(__file__).parent / "planted_training"
OWN_MODEL = Path(__file__).parents[2] / "examples" / "my_model.py"
BF16 = {"precision": "bf16-mixed"}


@cache
def plain() -> Graph:
    """Without batch norm, so that parts of a batch are the same training."""
    b = Builder("plain")
    x = b.input("data", (3, 12, 12))
    x = b.relu("relu1", b.conv("conv1", x, channels=8, kernel=3, pad=1))
    x = b.max_pool("pool1", x, kernel=2, stride=2)
    x = b.relu("relu2", b.conv("conv2", x, channels=12, kernel=3, pad=1))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", x), features=10))
    return b.build()


@cache
def sensitive() -> Graph:
    """So deep that it amplifies rounding: in bf16 the gradient of a batch is another one."""
    b = Builder("sensitive")
    x = b.relu("relu", b.conv("conv", b.input("data", (3, 8, 8)), channels=8, kernel=3, pad=1))
    for block in range(16):
        y = b.relu(
            f"relu{block}a", b.batch_norm(f"norm{block}a", b.conv(f"conv{block}a", x, channels=8, kernel=3, pad=1))
        )
        y = b.batch_norm(f"norm{block}b", b.conv(f"conv{block}b", y, channels=8, kernel=3, pad=1))
        x = b.relu(f"relu{block}b", b.add(f"add{block}", y, x))
    b.softmax_cross_entropy("loss", b.dense("dense", b.flatten("flatten", x), features=10))
    return b.build()


def planted(fault: str, **more: str) -> Environment:
    environment = find_environment("torch")
    variables = {"PYTHONPATH": str(PLANTED), "DEEPSTONE_TEST_PLANT_TRAINING": fault, **more}
    return replace(environment, variables=variables, lock={**environment.lock, "planted": fault})


def job(graph: Graph | None = None, environment: Environment | None = None, **axes: Value) -> Job:
    return check_job("torch", graph=graph or plain(), environment=environment, **{"batch": 16, **axes})


def checked(
    candidates: Mapping[str, Job], level: SameLevel = "close", *, default: Job | None = None, seconds: float = 250.0
) -> dict[str, SameSetup]:
    return same_training(default or job(), candidates, level, deadline_s=time.monotonic() + seconds)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def close(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SameSetup]:
    """One check of many setups, as a search asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSTONE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        return checked(
            {
                "nhwc": job(layout="nhwc", engine="native"),
                "fused": job(optimizer="momentum-fused"),
                "parts": job(accumulate=4),
                "mixed": job(**BF16),
                "narrow": job(precision="bf16"),
                "no update": job(environment=planted("no update")),
                "every tenth update": job(environment=planted("every tenth update")),
                "first layer": job(environment=planted("first layer")),
                "small gradients": job(environment=planted("small gradients"), **BF16),
                "other batch": job(batch=32),
            }
        )


@pytest.mark.parametrize("name", ["nhwc", "fused", "parts", "mixed"])
def test_a_right_setup_is_the_same(close: dict[str, SameSetup], name: str) -> None:
    found = close[name]
    assert found.ok, found.why_not
    assert found.verdict == "same"
    assert all(isinstance(each, SameMeasure) and each.ok for each in (found.gradient, found.loss, found.update))
    assert found.steps == 20


def test_order_alone_changes_far_less_than_rounding(close: dict[str, SameSetup]) -> None:
    order, rounding = close["nhwc"], close["mixed"]
    assert isinstance(order.gradient, SameMeasure)
    assert isinstance(rounding.gradient, SameMeasure)
    assert order.gradient.value < 0.1 * rounding.gradient.value
    assert (order.alters, rounding.alters) == (["order"], ["rounding"])
    assert (order.given_up, rounding.given_up) == ("", "products and activations in bf16")


@pytest.mark.parametrize("fault", ["no update", "every tenth update", "first layer", "small gradients"])
def test_a_planted_fault_is_not_the_same(close: dict[str, SameSetup], fault: str) -> None:
    found = close[fault]
    assert found.verdict == "not the same"
    assert isinstance(found.update, SameMeasure)
    assert not found.update.ok
    assert "updates differ" in found.why_not


def test_the_layer_without_update_is_named(close: dict[str, SameSetup]) -> None:
    update = close["first layer"].update
    assert isinstance(update, SameMeasure)
    assert update.where is not None
    assert update.where.startswith("conv1/")


def test_weights_in_bf16_lose_updates_of_a_small_learning_rate(close: dict[str, SameSetup]) -> None:
    """Its first gradient is as near as that of mixed precision: the loss of a few steps would not tell."""
    narrow, mixed = close["narrow"], close["mixed"]
    assert isinstance(narrow.gradient, SameMeasure)
    assert narrow.gradient.ok
    assert isinstance(narrow.update, SameMeasure)
    assert narrow.update.value > 0.3
    assert narrow.verdict == "not the same"
    assert "state" in narrow.alters
    assert mixed.ok


def test_another_batch_is_other_training_without_a_test(close: dict[str, SameSetup]) -> None:
    found = close["other batch"]
    assert found.verdict == "not the same"
    assert "batch=32" in found.why_not
    assert isinstance(found.gradient, Absent)


def test_parts_of_a_batch_are_other_training_with_batch_norm() -> None:
    from check_jobs import delicate

    default = job(delicate(), batch=8)
    found = checked({"parts": job(delicate(), batch=8, accumulate=2)}, default=default)["parts"]
    assert found.verdict == "not the same"
    assert "batch norm" in found.why_not
    assert altered(default, job(delicate(), batch=8, accumulate=2)) == ["batch"]


def test_a_network_that_amplifies_rounding_is_judged_by_what_rounding_does() -> None:
    def deep(environment: Environment | None = None, **axes: Value) -> Job:
        return job(sensitive(), environment, batch=8, **axes)

    found = checked(
        {
            "mixed": deep(**BF16),
            "narrow": deep(precision="bf16"),
            "first layer": deep(planted("first layer"), **BF16),
        },
        default=deep(),
    )
    mixed = found["mixed"]
    assert mixed.ok, mixed.why_not
    assert mixed.rounding is not None
    assert mixed.rounding > 0.1
    assert "rounding is" in mixed.given_up
    for name in ("narrow", "first layer"):
        assert found[name].verdict == "not the same", name


def test_exact_checks_every_layer_and_allows_no_rounding() -> None:
    found = checked({"nhwc": job(layout="nhwc"), "mixed": job(**BF16)}, "exact")
    assert found["nhwc"].ok, found["nhwc"].why_not
    assert isinstance(found["nhwc"].layers, Comparable)
    assert found["nhwc"].layers.ok
    assert found["mixed"].verdict == "not the same"
    assert "rounding" in found["mixed"].why_not


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_without_time_nothing_is_proven(seconds: float) -> None:
    found = checked({"nhwc": job(layout="nhwc")}, seconds=seconds)["nhwc"]
    assert found.verdict == "not proven"
    assert "--budget" in found.why_not


@pytest.mark.parametrize(
    ("batch", "parts", "most", "expected"),
    [
        (256, [1], 300.0, 256),
        (256, [1], 100.0, 64),
        (256, [1, 8], 9.0, 8),
        (256, [1, 8], 7.0, None),
        (6, [1], 3.5, 3),
        (6, [1], 2.0, None),
        (2, [1], 1.0, None),
        (2, [1], 2.0, 2),
    ],
)
def test_the_batch_is_halved_until_it_fits(batch: int, parts: list[int], most: float, expected: int | None) -> None:
    assert fitting_batch(batch, parts, most=most) == expected


@pytest.mark.parametrize(
    ("samples", "plan"),
    [(9999, (32, 20)), (320, (16, 20)), (159, (8, 10)), (70, (8, 5)), (39, (2, 10)), (10, (2, 5)), (9, None)],
)
def test_rather_fewer_steps_than_a_tiny_batch(samples: int, plan: tuple[int, int] | None):
    """`samples`: how many of all steps fit into the time."""
    assert fitting_plan(32, [1], most_at=lambda steps: samples / steps) == plan


def test_a_check_with_fewer_steps_or_a_smaller_batch_says_so(
    monkeypatch: pytest.MonkeyPatch, close: dict[str, SameSetup]
) -> None:
    assert close["nhwc"].reduced == ""
    assert "instead of" not in close["nhwc"].in_words()
    monkeypatch.setattr("deepstone.checks.same_training.FEWER_STEPS", (5,))
    monkeypatch.setattr("deepstone.checks.same_training.fitting_batch", lambda *_args, **_more: 8)
    found = checked({"nhwc": job(layout="nhwc")})["nhwc"]
    assert found.ok, found.why_not
    assert (found.steps, found.batch) == (5, 8)
    assert "5 steps instead of 20, 8 samples in a batch instead of 16" in found.in_words()


def test_a_default_that_does_not_repeat_itself_proves_nothing(tmp_path: Path) -> None:
    fickle = planted("nothing repeats", DEEPSTONE_TEST_PLANT_CALLS=str(tmp_path / "calls"))
    found = checked({"nhwc": job(layout="nhwc", environment=fickle)}, default=job(environment=fickle))["nhwc"]
    assert found.verdict == "not proven"
    assert "does not repeat itself" in found.why_not


def test_a_candidate_that_fails_is_not_proven() -> None:
    found = checked({"tf32": job(precision="tf32", device="cpu"), "nhwc": job(layout="nhwc")})
    assert found["tf32"].verdict == "not proven"
    assert "TF32" in found["tf32"].why_not
    assert found["nhwc"].ok


def test_a_module_of_ones_own() -> None:
    loaded = load_model(f"{OWN_MODEL}:make")

    def own(environment: Environment | None = None, **axes: Value) -> Job:
        return replace(job(environment=environment, batch=4, **axes), model=loaded)

    found = checked(
        {"mixed": own(**BF16), "no update": own(planted("no update")), "narrow": own(precision="bf16")}, default=own()
    )
    assert found["mixed"].ok, found["mixed"].why_not
    assert found["no update"].verdict == "not the same"
    assert found["narrow"].verdict == "not the same"


@pytest.mark.parametrize("phase", ["forward", "gradient"])
def test_phases_without_an_update(phase: str) -> None:
    found = checked({"mixed": job(phase=phase, **BF16)}, default=job(phase=phase))["mixed"]
    assert found.ok, found.why_not
    assert isinstance(found.update, Absent)
    assert isinstance(found.gradient, Absent) == (phase == "forward")


def test_the_summary_is_about_the_best(close: dict[str, SameSetup]) -> None:
    good = summary("close", list(close.values()), close["mixed"])
    assert good.ok
    assert good.given_up == "products and activations in bf16"
    assert not summary("close", list(close.values()), close["narrow"]).ok
    default = summary("close", [], None)
    assert default.ok
    assert not default.given_up


@pytest.mark.parametrize(
    ("device", "precision", "alters"),
    [
        ("gpu", "auto", ["order", "rounding"]),
        ("cpu", "auto", ["order"]),
    ],
)
def test_what_auto_rounds_in_another_framework_is_rounding(device: str, precision: str, alters: list[str]) -> None:
    """On a GPU JAX takes TF32 for all products, torch for convolutions only: without a check it may not win."""
    torch = job(device=device)
    jax = replace(find_environment("torch"), framework="jax")
    assert altered(torch, job(environment=jax, device=device, precision=precision)) == alters
