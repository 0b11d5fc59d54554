"""How much speed is lost by following advice instead of measuring everything: on tables that it was not made from.

    python bench/advice_regret.py [--json] [FOLDER…]

Each table is one network with one batch on one machine, with at least two measured setups. Rules are made from all
other tables: once without every table of its network, once without every table of its machine. The best advice that
was measured in the table is held against the best setup in it; regret is the share of the best speed that is missing.
Beside it: the default, and "always NHWC, bf16, compiled", each as far as the table has it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepstone.absent import Absent
from deepstone.results.advice import Rule
from deepstone.tuner.advice import Asked, ranking
from deepstone.tuner.evidence import Table, Words, in_numbers, rules_from, tables
from deepstone.tuner.published import published_records

RESULTS = Path(__file__).resolve().parents[1] / "results"
ALWAYS = frozenset({("precision", "bf16-mixed"), ("layout", "nhwc"), ("compile", "default")})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was chosen in a table, and which share of the best speed is missing."""

    table: Table
    chosen: Words
    best: Words
    regret: float


def speeds(table: Table) -> dict[Words, float]:
    """Of the fastest case of each setup that was measured; in rounds, their median."""
    found: dict[Words, float] = {}
    for words, several in table.setups.items():
        rates = [case.samples_per_s for case in several]
        found[words] = max(rate.median for rate in rates if not isinstance(rate, Absent))
    return found


def answer(table: Table, choose: Callable[[Table], Words]) -> Answer:
    of = speeds(table)
    best, chosen = max(of, key=lambda words: of[words]), choose(table)
    return Answer(table=table, chosen=chosen, best=best, regret=1 - of[chosen] / of[best])


def by_advice(rules: Sequence[Rule]) -> Callable[[Table], Words]:
    def choose(table: Table) -> Words:
        known = {_numbers(words, table): words for words in table.setups}
        asked = Asked(facts=table.facts, model=table.model)
        for setup, score in ranking(asked, (), rules):
            words = known.get(frozenset(setup.items()))
            if score > 0 and words is not None:
                return words
        return table.plainest

    return choose


def _numbers(words: Words, table: Table) -> Words | None:
    numbers = in_numbers(dict(words), table.facts.cores)
    return None if numbers is None else frozenset(numbers.items())


def always(table: Table) -> Words:
    """As much of it as the table has; where it has nothing of it, the default."""
    return max((words for words in table.setups if words <= ALWAYS), key=len, default=table.plainest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[RESULTS])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    everything = tables(record for folder in given.folders for record in published_records(folder))
    judged = [table for table in everything if len(table.setups) > 1 and table.facts.phase == "train"]
    methods: dict[str, list[Answer]] = {
        "advice, network left out": [
            answer(table, by_advice(rules_from([other for other in everything if other.model != table.model])))
            for table in judged
        ],
        "advice, machine left out": [
            answer(
                table, by_advice(rules_from([other for other in everything if other.machine_sha != table.machine_sha]))
            )
            for table in judged
        ],
        "advice, nothing left out": [answer(table, by_advice(rules_from(everything))) for table in judged],
        "default": [answer(table, lambda table: table.plainest) for table in judged],
        "always NHWC, bf16, compiled": [answer(table, always) for table in judged],
    }
    if given.json:
        print(json.dumps({name: [_as_json(each) for each in answers] for name, answers in methods.items()}, indent=1))
        return 0
    print(f"{len(judged)} tables with {sum(len(table.setups) for table in judged)} setups\n")
    print(f"{'':30} {'median regret':>14} {'worst':>7}   worst table")
    for name, answers in methods.items():
        worst = max(answers, key=lambda each: each.regret)
        middle = statistics.median(each.regret for each in answers)
        print(f"{name:30} {middle:>13.1%} {worst.regret:>7.1%}   {_title(worst.table)}: {_words(worst.chosen)}")
    print()
    for name in list(methods)[:2]:
        print(name)
        for each in methods[name]:
            print(f"  {each.regret:>6.1%}  {_title(each.table):60} {_words(each.chosen):60} best {_words(each.best)}")
    return 0


def _as_json(each: Answer) -> dict[str, object]:
    table = each.table
    return {
        "machine": table.machine,
        "model": table.model,
        "batch": table.facts.batch,
        "setups": len(table.setups),
        "chosen": dict(each.chosen),
        "best": dict(each.best),
        "regret": each.regret,
    }


def _title(table: Table) -> str:
    return f"{table.model}, batch {table.facts.batch}, {table.machine} ({len(table.setups)} setups)"


def _words(words: Words) -> str:
    return " ".join(f"{axis}={value}" for axis, value in sorted(words, key=str)) or "the default"


if __name__ == "__main__":
    sys.exit(main())
