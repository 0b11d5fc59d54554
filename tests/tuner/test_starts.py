"""Where a search begins: what the user names is looked at, what he leaves free is the search's own choice."""

from __future__ import annotations

from dataclasses import replace

from deepstone.setups.tuning import Facts
from deepstone.tuner.space import make_space
from deepstone.tuner.starts import starts_of

TWO_CORES = Facts(device="cpu", cores=2, frameworks=("torch", "jax"), isa=("avx2",), batch=32)


def test_each_value_of_a_short_list_is_a_start() -> None:
    space = make_space({"precision": ["bf16", "auto"], "layout": ["auto", "nhwc"]}, TWO_CORES, level="any")
    rules = {"framework": "torch", "layout": "nhwc", "compile": "default"}
    found = [space.given(point) for point in starts_of(space, advised=[rules])]
    assert found[0] == {}
    assert {"precision": "bf16"} in found
    assert {"layout": "nhwc"} in found
    best = next(place for place, setup in enumerate(found) if "compile" in setup)
    assert best < min(found.index({"precision": "bf16"}), found.index({"layout": "nhwc"}))


def test_a_value_that_the_default_does_not_take_is_a_start_in_another_framework() -> None:
    jax_first = replace(TWO_CORES, frameworks=("jax", "torch"))
    space = make_space({"framework": ["jax", "torch"], "layout": ["auto", "nhwc"]}, jax_first)
    found = [space.given(point) for point in starts_of(space)]
    assert space.given(space.default) == {"framework": "jax"}
    assert {"framework": "torch", "layout": "nhwc"} in found


def test_what_is_free_and_long_lists_are_left_to_the_search() -> None:
    free = make_space({}, TWO_CORES)
    assert [space for space in starts_of(free) if free.changed(space) not in ([], ["framework"])] == []
    long = make_space({"threads": [1, 2, 4, 8, 16]}, TWO_CORES)
    assert len({long.value(point, "threads") for point in starts_of(long)}) == 1


def test_on_a_gpu_the_framework_that_the_rules_have_first_comes_first() -> None:
    """Its start may be the only one that a small budget suffices for."""
    gpu = Facts(device="gpu", cores=16, gpus=1, frameworks=("torch", "jax"), batch=256)
    space = make_space({"batch": [256]}, gpu)
    rules = {"torch": {"precision": "bf16-mixed", "compile": "default"}, "jax": {"precision": "bf16-mixed"}}
    for order in (("torch", "jax"), ("jax", "torch")):
        advised = [{"framework": framework, **rules[framework]} for framework in order]
        first, *others = starts_of(space, advised=advised)
        assert first == space.default
        assert [space.framework(point) for point in others] == list(order)
