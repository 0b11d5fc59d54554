"""`deepstone axes`: every axis, its values, its default, and the backends that honour it."""

from __future__ import annotations

from deepstone.absent import Absent
from deepstone.cli.declare import examples
from deepstone.cli.options import Json
from deepstone.cli.output import Column, Data, print_json, print_table
from deepstone.setups.axes import AXES, FAKE, Axis
from deepstone.setups.tuning import NotTuned

EXAMPLES = examples("deepstone axes", "deepstone axes --json")


def axes(json: Json = False) -> None:
    """Every axis along which runs can differ, with its values and default."""
    if json:
        print_json([_described(axis) for axis in AXES.values()])
        return
    columns = [
        Column(heading="axis"),
        Column(heading="values", wraps=20),
        Column(heading="default"),
        Column(heading="honoured by", rank=2),
        Column(heading="searched\nby tune", rank=3),
        Column(heading="what it is", rank=1, wraps=30),
    ]
    rows = [
        (axis.name, " ".join(axis.offered()), str(axis.default), ", ".join(_honoured_by(axis)), _tuned(axis), axis.help)
        for axis in AXES.values()
    ]
    print_table(columns, rows)


def _described(axis: Axis) -> dict[str, Data]:
    return {
        "name": axis.name,
        "type": axis.type,
        "values": list(axis.offered()),
        "default": axis.default,
        "honoured_by": _honoured_by(axis),
        "tuned": Absent(axis.tuning.why) if isinstance(axis.tuning, NotTuned) else True,
        "help": axis.help,
    }


def _tuned(axis: Axis) -> str:
    return "no" if isinstance(axis.tuning, NotTuned) else "yes"


def _honoured_by(axis: Axis) -> list[str]:
    return [name for name in axis.honoured_by if name != FAKE]
