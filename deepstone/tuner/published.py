"""Makes the rules that come with Deepstone from published records, and writes them as a file that a diff can show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from deepstone.analysis.cases import is_measured
from deepstone.results.advice import Chosen, Rule, Rules
from deepstone.results.record import Record
from deepstone.results.searched import Searched
from deepstone.results.tune import Tuned
from deepstone.setups.axes import CURRENT, FAKE
from deepstone.store.importing import Names, read_searched_records
from deepstone.tuner.evidence import choices_of_auto, rules_from, tables

_MOST_PER_BASE: Final = 10  # setups of a framework over one other setup; nobody is advised to try more
_NEVER_FASTER: Final = 1.02  # a rule whose gain ends below it is of no use to anybody


def published(folder: Path) -> tuple[list[Record], Searched]:
    """Return the runs of every .jsonl below a folder, in the order of their names, and what the searches beside them
    say about them. Other files may have findings."""
    records: list[Record] = []
    searches: list[Tuned] = []
    names = Names()
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            first = json.loads(next(lines, "{}"))
        if "outcome" in first and "identity" in first and "kind" not in first:
            found = read_searched_records(path, names)
            records += found[0]
            searches += found[1]
    return records, Searched.of(searches)


def rules_of(measured: Sequence[Record], searched: Searched) -> Rules:
    """All rules about the default, which also tell what is slower; of those about other setups the best of each
    framework."""
    chosen: list[Rule] = []
    others: dict[tuple[object, ...], list[Rule]] = {}
    for rule in rules_from(tables(measured, searched)):
        framework = rule.setup.get("framework")
        if framework == FAKE:
            continue
        if not rule.over:
            chosen.append(rule)
        elif rule.gain.high > _NEVER_FASTER:
            others.setdefault((rule.when.device, rule.when.phase, str(dict(rule.over)), framework), []).append(rule)
    chosen += [rule for several in others.values() for rule in several[:_MOST_PER_BASE]]
    return Rules(records=len(measured), chosen=_chosen(measured), rules=sorted(chosen, key=_order))


def _chosen(records: Iterable[Record]) -> list[Chosen]:
    known = choices_of_auto(record for record in records if is_measured(record))
    return [
        Chosen(framework=framework, device=device, axis=axis, value=value)
        for (framework, device, axis), value in sorted(known.items())
        if framework in CURRENT
    ]


def as_text(rules: Rules) -> str:
    """One rule on each line."""
    lines = ",\n".join(json.dumps(rule.to_json(), ensure_ascii=False) for rule in rules.rules)
    chosen = ",\n".join(json.dumps(each.to_json()) for each in rules.chosen)
    return f'{{"records": {rules.records}, "chosen": [\n{chosen}\n], "rules": [\n{lines}\n]}}\n'


def _order(rule: Rule) -> tuple[str, str, str, str]:
    when = rule.when
    return when.device, when.phase, str(sorted(rule.over.items())), str(sorted(rule.setup.items(), key=str))
