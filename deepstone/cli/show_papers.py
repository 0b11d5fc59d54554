"""Verdicts as text: a table of all papers, one paper claim by claim, or one claim and how it is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from deepstone.cli.output import print_lines, print_table
from deepstone.cli.table import Column
from deepstone.papers.judge import rule_words
from deepstone.papers.paper import Claim
from deepstone.papers.rules.table import RULES
from deepstone.papers.verdict import WORDS
from deepstone.records.schema import is_absent
from deepstone.units import digits


def show_table(papers: Sequence[Mapping[str, Any]]) -> None:
    """Every claim of every paper, one line for each machine that says something about it."""
    columns = [
        Column(heading="claim"),
        Column(heading="what", wraps=24),
        Column(heading="published", wraps=12),
        Column(heading="verdict"),
        Column(heading="measured", right=True),
        Column(heading="machine", wraps=12),
    ]
    print_table(columns, [row for paper in papers for claim in paper["claims"] for row in _rows(claim)])
    for paper in papers:
        print_lines(["", f"{paper['name']}: {_counted(paper)}; `deepstone papers {paper['name']}` tells why"])


def show_paper(paper: Mapping[str, Any]) -> None:
    print_lines(
        [f"{paper['name']}: {paper['title']}", f"    {paper['citation']}", f"    measured on: {paper['setup']}"]
    )
    for claim in paper["claims"]:
        print_lines(["", f"{claim['id']}  {claim['claim']} ({claim['where']}: {claim['published']['text']})"], hang=8)
        verdicts = claim["by_machine"] or [claim]
        for verdict in _worth_telling(verdicts):
            print_lines([f"    {_head(verdict)}"], hang=4)
            print_lines([f"        {verdict['why']}"], hang=0)
            if verdict["setup"]:
                print_lines([f"        {verdict['setup']}{_rests_on(verdict)}"], hang=0)
    print_lines(["", f"{_counted(paper)}; {len(paper['charts'])} figures"])
    print_lines(f"wrong in the paper itself: {error}" for error in paper["errors"])


def show_claim(claim: Claim) -> None:
    print_lines(
        [
            f"{claim.id}: {claim.text}",
            f"    where      {claim.where}",
            f"    published  {claim.published['text']}",
            f"    tested by  {claim.test}",
        ],
        hang=11,
    )
    for number, use in enumerate(claim.rules):
        given = ", ".join(f"{key} = {value}" for key, value in use.parameters.items())
        print_lines([f"    {'rule' if number == 0 else 'else'}       {use.name}: {RULES[use.name].words}"], hang=11)
        print_lines([f"               {given}"] if given else [], hang=0)
        print_lines([f"               said with it: {use.remark}"] if use.remark else [], hang=0)


def claim_as_json(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "claim": claim.text,
        "where": claim.where,
        "published": dict(claim.published),
        "test": claim.test,
        "rule": rule_words(claim),
        "rules": [{"name": use.name, "parameters": dict(use.parameters)} for use in claim.rules],
    }


def _rows(claim: Mapping[str, Any]) -> list[list[str]]:
    verdicts = _worth_telling(claim["by_machine"] or [claim])
    first = [claim["id"], claim["claim"], claim["published"]["text"]]
    return [
        [*(first if number == 0 else ["", "", ""]), verdict["verdict"], _measured(verdict), verdict["machine"]]
        for number, verdict in enumerate(verdicts)
    ]


def _worth_telling(verdicts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Machines that have a verdict; where none has, what the first of them lacks."""
    return [verdict for verdict in verdicts if verdict["verdict"] != "not testable here"] or list(verdicts[:1])


def _head(verdict: Mapping[str, Any]) -> str:
    parts = [verdict["verdict"].upper(), _measured(verdict), verdict["machine"]]
    return "  ".join(part for part in parts if part)


def _measured(verdict: Mapping[str, Any]) -> str:
    value = verdict["measured"]
    if is_absent(value):
        return ""
    if verdict["unit"] == "share":
        return f"{digits(100 * value['median'])} %{_interval(value, 100)}"
    unit = "x" if verdict["unit"] == "ratio" else f" {verdict['unit']}"
    return f"{digits(value['median'])}{unit}{_interval(value, 1)}"


def _interval(value: Mapping[str, Any], factor: float) -> str:
    if value["low"] == value["high"]:
        return ""
    return f" ({digits(factor * value['low'])} – {digits(factor * value['high'])})"


def _rests_on(verdict: Mapping[str, Any]) -> str:
    ids = [*verdict["runs"], *verdict["findings"]]
    return f" [{', '.join(ids)}]" if ids else ""


def _counted(paper: Mapping[str, Any]) -> str:
    counts = Counter(claim["verdict"] for claim in paper["claims"])
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])
