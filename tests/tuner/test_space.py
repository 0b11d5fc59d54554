"""The space: what is in it, what is not and why, and one spelling for every setup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted import a_space

from deepstone.errors import UsageError
from deepstone.setups.axes import AXES, Value
from deepstone.setups.request import Request
from deepstone.setups.rules import broken_rule
from deepstone.setups.tuning import Facts, NotTuned, meaning_of_auto
from deepstone.tuner.space import MOST, Space, make_space

RESULTS = Path(__file__).resolve().parents[2] / "results"
TWO_CORES = Facts(
    device="cpu", cores=2, frameworks=("torch", "tensorflow", "jax"), isa=("avx2", "avx512_core"), batch=32
)
ONE_GPU = Facts(device="gpu", cores=16, gpus=1, frameworks=("torch", "jax"), batch=256, has_batch_norm=True)


def names(space: Space) -> set[str]:
    return {axis.name for axis in space.axes}


def test_every_point_can_run_and_is_spelt_in_one_way() -> None:
    for facts in (TWO_CORES, ONE_GPU):
        space = make_space({}, facts)
        assert space.default in space.points
        assert len(set(space.points)) == len(space.points) <= MOST
        for point in space.points[::7]:
            assert space.canonical(point) == point
            known = {"framework": space.framework(point), "device": "cpu" if facts.device == "cpu" else "gpu:0"}
            assert broken_rule({**space.request(point), **known}) is None
            assert space.point_of(space.given(point)) == point


def test_a_setup_names_where_it_left_what_the_user_began_with() -> None:
    """32 is what `batch` is by itself; beside a default with batch 8 it must not look like that one."""
    space = make_space({"batch": [8, 16, 32]}, TWO_CORES)
    assert space.given(space.default) == {"batch": 8}
    larger = space.with_value(space.default, "batch", 32)
    assert space.given(larger) == {"batch": 32}
    assert space.point_of(space.given(larger)) == larger


def test_every_axis_is_searched_or_says_why_not() -> None:
    space = make_space({"layout": ["nhwc"]}, TWO_CORES)
    assert names(space) | set(space.fixed) == set(AXES)
    assert all(space.fixed.values())
    assert space.fixed["layout"] == "you gave its value"


def test_a_level_allows_what_it_alters() -> None:
    values = {
        level: next((axis.values for axis in make_space({}, ONE_GPU, level=level).axes if axis.name == "precision"), ())
        for level in ("exact", "close", "any")
    }
    assert values["exact"] == ("auto", "fp32")
    assert "bf16-mixed" in values["close"]
    assert "bf16" not in values["close"]
    assert "bf16" in values["any"]
    # What the user lists is searched at every level.
    for level in ("exact", "close"):
        (listed,) = (
            axis.values
            for axis in make_space({"precision": ["auto", "bf16"]}, ONE_GPU, level=level).axes
            if axis.name == "precision"
        )
        assert listed == ("auto", "bf16")
    # Batch norm over parts of the batch is other training.
    assert "accumulate" not in names(make_space({}, ONE_GPU))
    assert "accumulate" in names(make_space({}, TWO_CORES))


def test_what_auto_means_is_no_setup_of_its_own() -> None:
    space = make_space({}, TWO_CORES)
    default = space.default
    for axis, value in (("layout", "nchw"), ("threads", 2), ("compile", "off"), ("precision", "fp32")):
        assert space.with_value(default, axis, value) == default
    tensorflow = space.with_value(default, "framework", "tensorflow")
    assert space.with_value(tensorflow, "layout", "nhwc") == tensorflow
    assert space.with_value(tensorflow, "layout", "nchw") != tensorflow


def test_an_axis_without_meaning_keeps_its_default() -> None:
    space = a_space({"affinity": ["auto", "compact"]})
    one_thread = space.with_value(space.default, "threads", 1)
    assert space.value(space.with_value(one_thread, "affinity", "compact"), "affinity") == "compact"
    assert space.with_value(space.default, "affinity", "compact") == space.default
    # Where it loses its meaning, it goes.
    bound = space.with_value(one_thread, "affinity", "compact")
    assert space.with_value(bound, "threads", "auto") == space.default


def test_neighbours_and_simpler_points_differ_in_one_change() -> None:
    space = a_space()
    point = space.with_value(space.with_value(space.default, "layout", "nhwc"), "threads", 1)
    assert set(space.simpler(point)) == {
        space.with_value(space.default, "layout", "nhwc"),
        space.with_value(space.default, "threads", 1),
    }
    assert all(len(space.changed(near, point)) == 1 for near in space.neighbours(point))


def test_exclusions_are_counted_by_reason() -> None:
    space = a_space({"compile": ["auto", "default"], "checkpointing": ["off", "on"]})
    assert any("compiling and checkpointing" in reason for reason in space.excluded)
    assert sum(space.excluded.values()) + len(space.points) == space.combinations
    full = make_space(
        {"framework": ["fake"], "layout": ["auto", "nhwc"]},
        Facts(device="cpu", frameworks=("fake",)),
        refusal=lambda request: "no room" if request["layout"] == "nhwc" else None,
    )
    assert full.excluded["no room"] > 0
    assert all(full.value(point, "layout") == "auto" for point in full.points)


@pytest.mark.parametrize("name", [name for name, axis in AXES.items() if isinstance(axis.tuning, NotTuned)])
def test_a_list_of_what_is_not_tuned_is_refused(name: str) -> None:
    values: list[Value] = [1, 2]
    with pytest.raises(UsageError, match=name):
        make_space({name: values}, TWO_CORES)


def test_what_auto_means_is_what_records_show() -> None:
    """In every published record of today's frameworks."""
    seen: set[tuple[str, str, str]] = set()
    for path in RESULTS.glob("**/*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if "kind" in record or record.get("outcome") != "ok":
                continue
            requested, effective = record["setup"]["requested"], record["setup"]["effective"]
            name, _, version = str(effective["framework"]["value"]).partition("@")
            device = "cpu" if effective["device"]["value"] == "cpu" else "gpu"
            if name not in ("torch", "tensorflow", "jax") or version.startswith("1."):
                continue
            cores = record["environment"]["machine"]["cpu"]["usable_cores"]
            processes = requested.get("processes", "auto") not in ("auto", 1)
            for axis, value in meaning_of_auto(name, Facts(device=device, cores=cores)).items():
                is_free = requested.get(axis) == "auto" and requested.get("engine") in ("auto", None)
                if (
                    is_free
                    and requested.get("compile") in ("auto", None)
                    and not processes
                    and requested.get("affinity") == "auto"
                ):
                    assert effective[axis]["value"] == value, (path.name, axis)
                    seen.add((name, device, axis))
    assert len(seen) > 15


def test_a_value_that_no_setup_can_have_is_not_searched() -> None:
    """Unless the user lists it: then the answer says why it is not there."""

    def refusal(request: Request) -> str | None:
        return "nothing to rewrite" if request["space_to_depth"] == "on" else None

    facts = Facts(device="cpu", cores=4, frameworks=("torch",))
    space = make_space({"framework": ["torch"]}, facts, refusal=refusal)
    assert "space_to_depth" not in {axis.name for axis in space.axes}
    assert space.fixed["space_to_depth"] == "nothing to rewrite"
    assert not any("rewrite" in reason for reason in space.excluded)
    listed = make_space({"framework": ["torch"], "space_to_depth": ["off", "on"]}, facts, refusal=refusal)
    assert "space_to_depth" in {axis.name for axis in listed.axes}
    assert any("rewrite" in reason for reason in listed.excluded)
