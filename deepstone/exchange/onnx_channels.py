"""ONNX nodes that split or reorder channels: Split, Slice, and the three nodes of a channel shuffle."""

from __future__ import annotations

import math

from deepstone.exchange import onnx_sizes
from deepstone.exchange.onnx_attributes import Attributes, Refused
from deepstone.exchange.onnx_file import Node
from deepstone.exchange.onnx_reader import Reader
from deepstone.graph import ops


def split(reader: Reader, node: Node) -> None:
    """Add a layer for each output; unused ones are removed at the end."""
    attributes = Attributes(node)
    attributes.only("axis", 1, -3, default=0)
    given = attributes.wholes("split")
    parts = attributes.whole("num_outputs", len(node.outputs))
    attributes.finish()
    channels = reader.image(node)[0]
    if given is None and len(node.inputs) > 1 and node.inputs[1]:
        given = onnx_sizes.whole_numbers(reader.constant(node, 1, "split"), "into how much it splits")
    if given is None:
        part = -(-channels // max(parts, 1))  # only the last may be smaller
        given = (*[part] * (parts - 1), channels - part * (parts - 1))
    if len(given) != len(node.outputs) or sum(given) != channels or min(given) < 1:
        raise Refused(f"splits {channels} channels into {list(given)}, for {len(node.outputs)} outputs")
    source, first = reader.source(node), 0
    for number, taken in enumerate(given):
        part_of = ops.Slice(first=first, channels=taken)
        reader.put(node, part_of, source, part=f".{number}", output=number)
        first += taken


def slice_(reader: Reader, node: Node) -> None:
    """Slice channels, without steps. Old files have the range in attributes, newer ones in constants."""
    attributes = Attributes(node)
    names = ("starts", "ends", "axes", "steps")
    listed = [attributes.wholes(name) for name in names]
    attributes.finish()
    for number, name in enumerate(names, start=1):
        if listed[number - 1] is None and number < len(node.inputs) and node.inputs[number]:
            listed[number - 1] = onnx_sizes.whole_numbers(reader.constant(node, number, name), f"its {name}")
    starts, ends, axes, steps = listed
    channels = reader.image(node)[0]
    if starts is None or ends is None or (len(starts), len(ends)) != (1, 1):
        raise Refused("only one range of channels has a layer here")
    if axes not in ((1,), (-3,)) or (steps or (1,)) != (1,):
        raise Refused("only channels, one after the other, have a layer here")
    first, end, _ = slice(starts[0], ends[0]).indices(channels)
    if (first, end) == (0, channels):
        reader.hand_on(node)
        return
    reader.put(node, ops.Slice(first=first, channels=max(end - first, 0)))


def transpose(reader: Reader, node: Node) -> None:
    """The middle of a channel shuffle, between two reshapes."""
    attributes = Attributes(node)
    order = attributes.wholes("perm")
    attributes.finish()
    groups, swapped = reader.grouped(node)
    if not groups or swapped or order != (0, 2, 1, 3, 4):
        raise Refused("only the shuffle of channels, between two Reshape, has a layer here")
    reader.hand_on_grouped(node, groups, swapped=True)


def reshape_groups(reader: Reader, node: Node, sides: list[int]) -> bool:
    """Whether this reshape begins or ends a channel shuffle: [batch, groups, channels / groups, height, width]."""
    shape = reader.shape(node)
    groups, swapped = reader.grouped(node)
    if groups:
        if not swapped or not _same_size(sides[1:], shape):
            raise Refused("only the shuffle of channels, between two Reshape, has a layer here")
        reader.put(node, ops.Shuffle(groups=groups))
        return True
    if len(sides) != 5 or len(shape) != 3:
        return False
    first, second = sides[1], sides[2]
    groups = first if first > 0 else shape[0] // second if second > 0 else 0
    if groups < 1 or shape[0] % groups or not _same_size(sides[1:], (groups, shape[0] // groups, *shape[1:])):
        return False
    reader.hand_on_grouped(node, groups, swapped=False)
    return True


def _same_size(sides: list[int], shape: tuple[int, ...]) -> bool:
    """Whether these are the dimensions; one of them may be -1, which means the rest."""
    known = math.prod(side for side in sides if side != -1)
    filled = [math.prod(shape) // known if side == -1 and known > 0 else side for side in sides]
    return sides.count(-1) <= 1 and tuple(filled) == shape
