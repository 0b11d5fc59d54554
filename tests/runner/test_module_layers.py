"""Parts of a user's own module, together: by class, by block, and by what contains them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from deepstone.absent import Absent
from deepstone.measure.statistics import median_of
from deepstone.results.layers import LayerRow, Passes
from deepstone.runner.layers.modules import ModuleLayers
from deepstone.runner.replies import ModulePart

CONTAINERS = {
    "": "Bert",
    "bert": "Encoder",
    "bert.embeddings": "Embeddings",
    "bert.layer": "ModuleList",
    "bert.layer.0": "Block",
    "bert.layer.0.attention": "Attention",
    "bert.layer.1": "Block",
    "bert.layer.1.attention": "Attention",
}
UNKNOWN = Absent("unknown")


def part(path: str, op: str, flops: int | Absent = 0) -> ModulePart:
    name = ".".join(filter(None, [path, op])) if op.endswith("()") else path
    return ModulePart(name=name, op=op, path=path, parameters=0, flops={"forward": flops, "backward": flops})


def rows(layers: ModuleLayers) -> list[LayerRow]:
    """Each takes a second forward and two backward."""
    times = {
        (name, direction): median_of([[[seconds]]])
        for name in layers.parts
        for direction, seconds in (("forward", 1.0), ("backward", 2.0))
    }
    found = layers.rows(times, {})
    return [replace(row, share=1 / len(found)) for row in found]


def layers(*parts: ModulePart, containers: Mapping[str, str] = CONTAINERS) -> ModuleLayers:
    return ModuleLayers(parts={each.name: each for each in parts}, containers=containers)


BERT = layers(
    part("bert.embeddings.words", "Embedding"),
    part("bert.embeddings", "add()"),
    part("bert.layer.0.attention.query", "Linear", 10),
    part("bert.layer.0.attention", "matmul()", 4),
    part("bert.layer.0", "add()"),
    part("bert.layer.1.attention.query", "Linear", 10),
    part("bert.layer.1.attention", "matmul()", UNKNOWN),
    part("head", "Linear", 5),
    part("", "add()"),
    part("loss", "cross_entropy()"),
)


def test_a_row_knows_its_class_and_its_rate() -> None:
    query = next(row for row in rows(BERT) if row.name == "bert.layer.0.attention.query")
    assert (query.op, query.flops) == ("Linear", Passes(forward=10, backward=10))
    assert not isinstance(query.flops_per_s, Absent)
    assert (query.flops_per_s.forward, query.flops_per_s.backward) == (10, 5)


def test_classes_come_with_the_costliest_first() -> None:
    groups = BERT.by_class(rows(BERT))
    assert {group.name: group.layers for group in groups} == {
        "Linear": 3,
        "add()": 3,
        "matmul()": 2,
        "Embedding": 1,
        "cross_entropy()": 1,
    }
    assert [group.share for group in groups] == sorted((group.share for group in groups), reverse=True)
    assert sum(group.share for group in groups) == pytest.approx(1)
    flops = {group.name: group.flops for group in groups}
    assert flops["Linear"] == Passes(forward=25, backward=25)
    assert flops["matmul()"] == UNKNOWN  # one of them is


def test_blocks_are_the_numbered_ones_and_what_is_beside_them() -> None:
    groups = BERT.by_block(rows(BERT))
    assert {group.name: group.layers for group in groups} == {
        "bert.embeddings (Embeddings)": 2,
        "bert.layer.0 (Block)": 3,
        "bert.layer.1 (Block)": 2,
        "head": 1,
        "the module itself": 1,
        "loss": 1,
    }
    assert sum(group.share for group in groups) == pytest.approx(1)


def test_what_contains_others_has_all_of_their_time() -> None:
    groups = {group.name: group for group in BERT.by_container(rows(BERT))}
    assert {name: group.layers for name, group in groups.items()} == {
        "Encoder": 1,
        "Block": 2,
        "Attention": 2,
        "Embeddings": 1,
    }
    assert groups["Attention"].forward_s == 4
    assert groups["Block"].backward_s == 10


def test_names_that_end_in_a_number_are_blocks_where_no_name_is_one() -> None:
    dense = layers(
        part("features.block1.conv", "Conv2d"),
        part("features.block1.norm", "BatchNorm2d"),
        part("features.block2.conv", "Conv2d"),
        part("classifier", "Linear"),
        containers={"": "Net", "features": "Sequential", "features.block1": "Dense", "features.block2": "Dense"},
    )
    names = [group.name for group in dense.by_block(rows(dense))]
    assert names == ["features.block1 (Dense)", "features.block2 (Dense)", "classifier"]


def test_blocks_that_are_the_rows_are_not_repeated() -> None:
    chain = layers(part("0", "Linear"), part("1", "ReLU"), containers={"": "Sequential"})
    assert chain.by_block(rows(chain)) == []
