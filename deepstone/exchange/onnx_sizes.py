"""Sizes that an ONNX file computes before it reshapes: constants, and the small sums that exporters write.

In a computed shape 0 means the batch, as in a Reshape: "unchanged".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from deepstone.exchange.onnx_attributes import Attributes, Refused
from deepstone.exchange.onnx_file import Constant, Node, Number
from deepstone.graph.ops import Shape

BATCH = 0


def shape_of(node: Node, shape: Shape) -> Constant:
    """Return the Shape of an array of the network."""
    attributes = Attributes(node)
    sides = (BATCH, *shape)
    start, end = attributes.whole("start", 0), attributes.whole("end", len(sides))
    attributes.finish()
    return _vector(sides[start:end])


def computed(node: Node, inputs: Sequence[Constant]) -> Constant:
    """Compute a node whose inputs are all constants."""
    return _COMPUTED[node.op](node, inputs)


def whole_numbers(constant: Constant | None, what: str) -> tuple[int, ...]:
    values = None if constant is None else constant.values
    if values is None or not all(isinstance(value, int) for value in values):
        raise Refused(f"{what} is not known from the file alone")
    return tuple(int(value) for value in values)


def _given(node: Node, inputs: Sequence[Constant]) -> Constant:
    attributes = Attributes(node)
    found = attributes.array("value") or Constant(shape=())
    for name, value in node.attributes.items():
        if name in ("value_int", "value_float") and isinstance(value, (int, float)):
            attributes.ignore(name)
            found = Constant(shape=(), values=(value,))
        elif name in ("value_ints", "value_floats") and isinstance(value, tuple):
            attributes.ignore(name)
            found = _vector(value)
    attributes.finish()
    return found


def _same(node: Node, inputs: Sequence[Constant]) -> Constant:
    return _first(inputs)


def _gather(node: Node, inputs: Sequence[Constant]) -> Constant:
    attributes = Attributes(node)
    attributes.only("axis", 0, default=0)
    attributes.finish()
    sides, places = whole_numbers(_first(inputs), "what it gathers from"), whole_numbers(_at(inputs, 1), "its index")
    try:
        taken = tuple(sides[place] for place in places)
    except IndexError:
        raise Refused(f"takes number {max(places)} of {len(sides)}") from None
    return Constant(shape=() if inputs[1].shape == () else (len(taken),), values=taken)


def _concat(node: Node, inputs: Sequence[Constant]) -> Constant:
    attributes = Attributes(node)
    attributes.only("axis", 0, default=0)
    attributes.finish()
    return _vector([value for each in inputs for value in whole_numbers(each, "what it joins")])


def _unsqueeze(node: Node, inputs: Sequence[Constant]) -> Constant:
    return _vector(whole_numbers(_first(inputs), "its input"))


def _squeeze(node: Node, inputs: Sequence[Constant]) -> Constant:
    values = whole_numbers(_first(inputs), "its input")
    return Constant(shape=(), values=values) if len(values) == 1 else _vector(values)


def _slice(node: Node, inputs: Sequence[Constant]) -> Constant:
    attributes = Attributes(node)
    listed = [attributes.wholes(name) for name in ("starts", "ends")]
    attributes.ignore("axes")  # a shape has one
    attributes.finish()
    starts, ends = (
        found if found is not None else whole_numbers(_at(inputs, number), "its range")
        for number, found in enumerate(listed, start=1)
    )
    steps = whole_numbers(inputs[4], "its step") if len(inputs) > 4 else (1,)
    if (len(starts), len(ends), len(steps)) != (1, 1, 1) or steps[0] < 1:
        raise Refused("does not slice a shape")
    return _vector(whole_numbers(_first(inputs), "its input")[starts[0] : ends[0] : steps[0]])


def _transpose(node: Node, inputs: Sequence[Constant]) -> Constant:
    attributes = Attributes(node)
    shape = _first(inputs).shape
    order = attributes.wholes("perm") or tuple(reversed(range(len(shape))))
    attributes.finish()
    if sorted(order) != list(range(len(shape))):
        raise Refused(f"perm does not fit an array of {len(shape)} sides")
    return Constant(shape=tuple(shape[side] for side in order))


def _arithmetic(compute: Callable[[int, int], int]) -> Callable[[Node, Sequence[Constant]], Constant]:
    """Compute with two whole numbers, as in half of the channels."""

    def computed(node: Node, inputs: Sequence[Constant]) -> Constant:
        Attributes(node).finish()
        left, right = (whole_numbers(_at(inputs, number), "what it computes with") for number in (0, 1))
        if BATCH in (*left, *right):
            raise Refused("computes with the batch")
        if (len(left), len(right)) != (1, 1):
            raise Refused("computes with more than two numbers")
        return Constant(shape=inputs[0].shape, values=(compute(left[0], right[0]),))

    return computed


def _vector(values: Sequence[Number]) -> Constant:
    return Constant(shape=(len(values),), values=tuple(values))


def _first(inputs: Sequence[Constant]) -> Constant:
    return _at(inputs, 0)


def _at(inputs: Sequence[Constant], number: int) -> Constant:
    if number >= len(inputs):
        raise Refused(f"has {len(inputs)} inputs, which are too few")
    return inputs[number]


_COMPUTED: Mapping[str, Callable[[Node, Sequence[Constant]], Constant]] = {
    "Add": _arithmetic(operator.add),
    "Sub": _arithmetic(operator.sub),
    "Mul": _arithmetic(operator.mul),
    "Div": _arithmetic(lambda left, right: left // right),
    "Constant": _given,
    "Identity": _same,
    "Cast": _same,
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Transpose": _transpose,
}
COMPUTES = frozenset(_COMPUTED)
