"""Writes the tables in docs/ that the code itself knows: `python docs/generate.py`. A test sees that they are current.

A page keeps its prose; only what stands between `<!-- begin NAME -->` and `<!-- end NAME -->` is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from deepstone.graph.cost import graph_cost
from deepstone.models.zoo import ZOO
from deepstone.setups.axes import AXES, FAKE
from deepstone.setups.rules import RULES
from deepstone.units import count

DOCS = Path(__file__).resolve().parent


def axes_table() -> str:
    rows = [
        (
            f"`{axis.name}`",
            " ".join(f"`{value}`" for value in axis.values),
            f"`{axis.default}`",
            ", ".join(name for name in axis.honoured_by if name != FAKE),
            axis.help,
        )
        for axis in AXES.values()
    ]
    return _table(("axis", "values", "default", "honoured by", "what it is"), rows)


def rules_list() -> str:
    return "\n".join(f"- {rule.reason}." for rule in RULES)


def zoo_table() -> str:
    rows: list[tuple[str, ...]] = []
    for name, model in ZOO.items():
        graph = model.make()
        cost = graph_cost(graph)
        shape = "×".join(map(str, graph.shapes[graph.input.name]))
        flops = f"{count(cost.forward_flops)} + {count(cost.backward_flops)}"
        source = f"{model.source}; {model.note}" if model.note else model.source
        rows.append((f"`{name}`", shape, f"{cost.parameters:,}", flops, source))
    return _table(("model", "input", "parameters", "FLOPs per image, forward + backward", "source"), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "axes": ("axes.md", axes_table),
    "rules": ("axes.md", rules_list),
    "zoo": ("models.md", zoo_table),
}


def with_part(text: str, name: str, content: str) -> str:
    """The page with one part written anew; ValueError when it has no such part."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    changed, found = re.subn(
        rf"{re.escape(begin)}\n.*?{re.escape(end)}", lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL
    )
    if found != 1:
        raise ValueError(f"expected one part {name!r} between {begin} and {end}, found {found}")
    return changed


def main() -> None:
    for name, (page, make) in PARTS.items():
        path = DOCS / page
        path.write_text(with_part(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")


if __name__ == "__main__":
    main()
