"""How much speed is lost by following advice instead of measuring everything: on tables that it was not made from.

    python bench/advice_regret.py [--json] [FOLDER…]

Each table is one network with one batch on one machine, with at least two measured setups: of the records in
`results/`, and the large ones of `tune_table.py`, from which no rule was ever made. Rules are made from all other
records: once without every table of its network, once without every table of its machine. The best advice that was
measured in the table is held against the best setup in it; regret is the share of the best speed that is missing.
Beside it: the default, and "always NHWC, bf16, compiled", each as far as the table has it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tune_table import Table as SearchTable

from deepstone.absent import Absent
from deepstone.results.advice import Rule
from deepstone.setups.axes import Value
from deepstone.tuner.advice import Asked, ranking
from deepstone.tuner.evidence import Table, Words, in_numbers, rules_from, tables
from deepstone.tuner.published import published
from deepstone.tuner.space import Point

RESULTS = Path(__file__).resolve().parents[1] / "results"
OF_SEARCHES = Path(__file__).resolve().parent / "results"
ALWAYS = frozenset({("precision", "bf16-mixed"), ("layout", "nhwc"), ("compile", "default")})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was chosen in a table, and which share of the best speed is missing."""

    machine: str
    model: str
    batch: int
    setups: int
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
    return Answer(
        machine=table.machine,
        model=table.model,
        batch=table.facts.batch,
        setups=len(table.setups),
        chosen=chosen,
        best=best,
        regret=1 - of[chosen] / of[best],
    )


def answer_in_search(table: SearchTable, wanted: Sequence[Mapping[str, Value]]) -> Answer:
    """`wanted`: the setups that a method chooses, the best first; the first one that the table has counts, or else the
    default."""
    of = {point: statistics.median(speeds) for point in table.points if (speeds := table.speeds(point))}
    known = {table.resolved(point): point for point in of}
    named = {axis.name for axis in table.axes}
    chosen = table.default
    for setup in wanted:
        point = table.default
        for name, value in setup.items():
            point = table.with_value(point, name, value)
        if setup.keys() <= named and table.resolved(point) in known:
            chosen = known[table.resolved(point)]
            break
    best = max(of, key=lambda point: of[point])
    return Answer(
        machine=_device(table),
        model=table.head["model"],
        batch=table.advice_facts().batch,
        setups=len(of),
        chosen=_changed(table, chosen),
        best=_changed(table, best),
        regret=1 - of[chosen] / of[best],
    )


def _device(table: SearchTable) -> str:
    """The machine as records name it: the GPU alone, or the CPU with its cores."""
    gpu, _, _ = str(table.head["machine"]).partition(",")
    return gpu if table.facts.device == "gpu" else str(table.head["machine"])


def _changed(table: SearchTable, point: Point) -> Words:
    pairs = zip(table.axes, point, table.default, strict=True)
    return frozenset((axis.name, value) for axis, value, usual in pairs if value != usual)


def advised(table: SearchTable, rules: Sequence[Rule]) -> list[Mapping[str, Value]]:
    asked = Asked(facts=table.advice_facts(), model=table.head["model"])
    return [setup for setup, score in ranking(asked, (), rules) if score > 0]


def as_far_as_it_goes(table: SearchTable) -> list[Mapping[str, Value]]:
    """NHWC, bf16 and compiled, then with fewer of them."""
    several = [dict(each) for count in (3, 2, 1) for each in combinations(sorted(ALWAYS), count)]
    return [setup for setup in several if setup.keys() <= {axis.name for axis in table.axes}]


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
    everything = [table for folder in given.folders for table in tables(*published(folder))]
    judged = [table for table in everything if len(table.setups) > 1 and table.facts.phase == "train"]
    large = [SearchTable.read(path) for path in sorted(OF_SEARCHES.glob("tune-table-*.json"))]

    def of_advice(is_kept: Callable[[Table, str, str], bool]) -> list[Answer]:
        """`is_kept`: whether rules may be made from a table, when one of this network on this machine is judged."""

        def rules(model: str, machine: str) -> list[Rule]:
            return rules_from([other for other in everything if is_kept(other, model, machine)])

        return [
            *(answer(table, by_advice(rules(table.model, table.machine))) for table in judged),
            *(answer_in_search(table, advised(table, rules(table.head["model"], _device(table)))) for table in large),
        ]

    methods: dict[str, list[Answer]] = {
        "advice, network left out": of_advice(lambda other, model, _machine: other.model != model),
        "advice, machine left out": of_advice(lambda other, _model, machine: other.machine != machine),
        "advice, nothing left out": of_advice(lambda _other, _model, _machine: True),
        "default": [
            *(answer(table, lambda table: table.plainest) for table in judged),
            *(answer_in_search(table, []) for table in large),
        ],
        "always NHWC, bf16, compiled": [
            *(answer(table, always) for table in judged),
            *(answer_in_search(table, as_far_as_it_goes(table)) for table in large),
        ],
    }
    if given.json:
        print(json.dumps({name: [_as_json(each) for each in answers] for name, answers in methods.items()}, indent=1))
        return 0
    every = methods["default"]
    print(f"{len(every)} tables with {sum(each.setups for each in every)} setups\n")
    print(f"{'':30} {'median regret':>14} {'worst':>7}   worst table")
    for name, answers in methods.items():
        worst = max(answers, key=lambda each: each.regret)
        middle = statistics.median(each.regret for each in answers)
        print(f"{name:30} {middle:>13.1%} {worst.regret:>7.1%}   {_title(worst)}: {_words(worst.chosen)}")
    print()
    for name in list(methods)[:2]:
        print(name)
        for each in methods[name]:
            print(f"  {each.regret:>6.1%}  {_title(each):60} {_words(each.chosen):60} best {_words(each.best)}")
    return 0


def _as_json(each: Answer) -> dict[str, object]:
    return {**asdict(each), "chosen": dict(each.chosen), "best": dict(each.best)}


def _title(each: Answer) -> str:
    return f"{each.model}, batch {each.batch}, {each.machine} ({each.setups} setups)"


def _words(words: Words) -> str:
    return " ".join(f"{axis}={value}" for axis, value in sorted(words, key=str)) or "the default"


if __name__ == "__main__":
    sys.exit(main())
