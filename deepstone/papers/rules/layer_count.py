"""How many layers Caffe would count in a network: those of its prototxt, and the splits that Caffe inserts."""

from __future__ import annotations

from collections import Counter
from typing import cast

from deepstone.models.caffe.text import Message, Scalar, parse
from deepstone.models.caffe.write import prototxt
from deepstone.models.zoo import ZOO
from deepstone.papers.answer import Answer
from deepstone.papers.evidence import Evidence
from deepstone.papers.rules.rule import Asked, Rule
from deepstone.papers.verdict import exactly, of_count, of_parts


def _apply(asked: Asked, evidence: Evidence) -> Answer:
    published = asked.parameters["layers"]
    implied = asked.parameters["implied"]
    counts = {model: caffe_layers(model, implied) for model in published}
    parts = [of_count(counts[model], published[model]) for model in published]
    first = next(iter(published))
    listed = ", ".join(f"{model} {counts[model]} (published {published[model]})" for model in published)
    return Answer(
        word=of_parts(parts),
        why=f"{listed}; batch norm and scale apart, splits inserted; {parts[0].why}",
        measured=exactly(counts[first]),
        unit="layers",
        setup="the exported prototxt of each network",
    )


def caffe_layers(model: str, implied: list[str]) -> int:
    """`implied`: types that our prototxt spells out and Caffe does not need, because the next layer does it."""
    net = parse(prototxt(ZOO[model].make(), batch=1).encode(), f"{model}.prototxt")
    layers = [layer for layer in cast(list[Message], net.fields["layer"]) if _texts(layer, "type")[0] not in implied]
    return len(layers) + _splits(net)


def _splits(net: Message) -> int:
    """One for each array that several layers read. A layer that works in place makes a new array of the same name."""
    version: Counter[str] = Counter()
    readers: Counter[tuple[str, int]] = Counter()
    for layer in cast(list[Message], net.fields["layer"]):
        for blob in _texts(layer, "bottom"):
            readers[blob, version[blob]] += 1
        for blob in _texts(layer, "top"):
            version[blob] += 1
    return sum(count > 1 for count in readers.values())


def _texts(layer: Message, field: str) -> list[str]:
    return [cast(Scalar, value).text for value in layer.fields.get(field, [])]


RULE = Rule(
    words="Layers of the exported prototxt plus one split for each array that several layers read, as Caffe counts.",
    parameters=("layers", "implied"),
    scope="counted",
    apply=_apply,
)
