"""Writes the tables in docs/ that the code itself knows: `python docs/generate.py`. A test sees that they are current.

A page keeps its prose; only what stands between `<!-- begin NAME -->` and `<!-- end NAME -->` is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from deepstone.analysis.cases import cases
from deepstone.analysis.facts import year_of
from deepstone.analysis.wording import framework, span
from deepstone.cli.papers import measured_in_words, verdicts_to_report
from deepstone.environments.cookbook import all_recipes
from deepstone.graph.cost import graph_cost
from deepstone.models.zoo import ZOO
from deepstone.papers.gather import gather
from deepstone.papers.judge import judged_paper
from deepstone.papers.paper import load_paper, paper_names
from deepstone.papers.rules import RULES as PAPER_RULES
from deepstone.papers.verdict import NOT_TESTABLE
from deepstone.report.sources import Gathered
from deepstone.results.claim import JudgedPaper
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import AXES, FAKE
from deepstone.setups.honoured import HONOURED
from deepstone.setups.rules import RULES
from deepstone.setups.tuning import NotTuned
from deepstone.units import bytes_, count, digits

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
EIGHT_YEARS = RESULTS / "two-cores" / "eight-years.jsonl"


def axes_table() -> str:
    rows = [
        (
            f"`{axis.name}`",
            " ".join(f"`{value}`" for value in axis.values),
            f"`{axis.default}`",
            ", ".join(name for name in axis.honoured_by if name != FAKE),
            f"no: {axis.tuning.why}" if isinstance(axis.tuning, NotTuned) else "yes",
            axis.help,
        )
        for axis in AXES.values()
    ]
    return _table(("axis", "values", "default", "honoured by", "searched by `tune`", "what it is"), rows)


def rules_list() -> str:
    return "\n".join(f"- {rule.reason}." for rule in RULES)


def values_table() -> str:
    """The values that a framework takes of an axis, where the table of axes does not say it."""
    rows = [
        (framework, *(" ".join(f"`{value}`" for value in taken.get(axis, ())) for axis in _LIMITED_AXES))
        for framework, taken in HONOURED.items()
    ]
    return _table(("framework", *(f"`{axis}`" for axis in _LIMITED_AXES)), rows)


_LIMITED_AXES = tuple(axis for axis in AXES if any(axis in taken for taken in HONOURED.values()))


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


def recipes_table() -> str:
    rows = [
        (
            f"`{recipe.name}`",
            str(recipe.year),
            ", ".join(recipe.python),
            bytes_(recipe.size_bytes),
            f"`deepstone env add {recipe.framework if recipe.default else recipe.name}`",
            recipe.notes,
        )
        for recipe in sorted(all_recipes(), key=lambda recipe: (recipe.year, recipe.name))
    ]
    return _table(("version", "year", "Python", "size", "how to add it", "what it is"), rows)


def eight_years_table() -> str:
    """What `deepstone study eight-years` measured, as far as its records are in results/."""
    if not EIGHT_YEARS.exists():
        return "Not measured yet."
    gathered = Gathered()
    gathered.take(EIGHT_YEARS)
    speeds: dict[tuple[int, str], dict[str, str]] = {}
    days: set[str] = set()
    for case in cases(gathered.records):
        year, rate = year_of(case.record), case.samples_per_s
        shown = f"{digits(rate.median)} ({span(rate)})" if isinstance(rate, Quantity) else case.why_not
        release = (year if isinstance(year, int) else 0), framework(case)
        speeds.setdefault(release, {})[case.record.workload.phase] = shown
        days.add(case.record.started_at[:10])
    rows = [
        (name, str(year or "not known"), found.get("train", ""), found.get("forward", ""))
        for (year, name), found in sorted(speeds.items())
    ]
    table = _table(("version", "year", "training, images/s", "forward, images/s"), rows)
    return f"Measured on {' and '.join(sorted(days))}; medians with 95 % intervals across rounds.\n\n{table}"


def claims_table(paper: str) -> str:
    """What a paper claims, and what tests it here."""
    rows = [
        (
            claim.id,
            claim.text.rstrip("."),
            claim.published.text,
            claim.test,
            ", ".join(dict.fromkeys(use.name for use in claim.rules)),
        )
        for claim in load_paper(paper).claims
    ]
    return _table(("claim", "what it says", "published", "what tests it", "rule"), rows)


def verdicts_table(paper: str) -> str:
    """What the records in results/ say of a paper, on each machine that has a verdict."""
    rows = [
        (
            claim.id if number == 0 else "",
            verdict.machine if verdict.verdict != NOT_TESTABLE else "",
            f"**{verdict.verdict}**",
            measured_in_words(verdict),
            verdict.why,
            verdict.setup,
        )
        for claim in _judged()[paper].claims
        for number, verdict in enumerate(verdicts_to_report(claim.by_machine or [claim]))
    ]
    return _table(("claim", "machine", "verdict", "measured", "why", "setup"), rows)


def paper_rules_table() -> str:
    return _table(("rule", "how records become a verdict"), [(name, rule.words) for name, rule in PAPER_RULES.items()])


@cache
def _judged() -> dict[str, JudgedPaper]:
    """Every paper, judged by everything in results/."""
    papers = [load_paper(name) for name in paper_names()]
    folders = sorted(path for path in RESULTS.iterdir() if path.is_dir())
    evidence = gather(papers, RESULTS / "no store", folders, [], [])
    return {paper.name: judged_paper(paper, evidence, scale=None) for paper in papers}


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "axes": ("axes.md", axes_table),
    "rules": ("axes.md", rules_list),
    "values": ("axes.md", values_table),
    "zoo": ("models.md", zoo_table),
    "recipes": ("frameworks.md", recipes_table),
    "eight-years": ("frameworks.md", eight_years_table),
    "paper-rules": ("papers.md", paper_rules_table),
    **{f"{name}-claims": ("papers.md", partial(claims_table, name)) for name in paper_names()},
    **{f"{name}-verdicts": ("papers.md", partial(verdicts_table, name)) for name in paper_names()},
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
