"""How good is the search of `deepstone tune`? Replays it, and other methods, on recorded tables of measured setups.

    python bench/tune_replay.py                              every table in bench/results/tune-table-*.json
    python bench/tune_replay.py --synthetic                  made-up landscapes with a known truth
    python bench/tune_replay.py TABLE.json --seeds 40 --share 0.1

Every method may spend the same seconds: a `--share` of what one launch at every point takes, a tenth and a half unless
told. Ours and the greedy one begin where the product would: at what the rules of advice call best, made from records of
other networks alone. A method draws from some of the rounds of a table; the truth, including which point is best, comes
from the others, shrunk towards what similar points have, because the best of many noisy numbers is too good. A point
that was launched once (on a quiet GPU) is what that launch says. `speed` is the true speed of what a method chose over
that of the best; ours is credited with the setup that it expects to be the best, also where the finals decide nothing.
`answered` is the same of what our answer names: the default, if nothing is decided. `covers`: how often our interval of
the gain holds the true gain, and `decided`: how often there was time for one. `false`: how often we name a winner on a
flattened table, where all points are equally fast. Ours spends a fifth on finals and the rest on the search; it proves
and explains nothing, which takes the product a third of its time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tune_table import Table

from deepstone.setups.axes import AXES, Value
from deepstone.setups.tuning import Facts, Tuning
from deepstone.tuner.advice import starts
from deepstone.tuner.evidence import rules_from, tables
from deepstone.tuner.finals import FEWEST_ROUNDS, Spread, judge, plan_finals
from deepstone.tuner.published import published
from deepstone.tuner.search import Search, Seen
from deepstone.tuner.space import Point, SearchAxis
from deepstone.tuner.starts import starts_of

RESULTS = Path(__file__).resolve().parent / "results"
RECORDS = RESULTS.parents[1] / "results"
FINALS_SHARE = 0.2
COLUMNS = ("speed", "p10", "answered", "spent", "decided", "covers", "false")


OVER = 1.1  # as the product: a launch that takes longer is ended


@dataclass(kw_only=True)
class Replay:
    """One seed: which rounds a method draws from, and what is true. `draw` gives a speed and its seconds."""

    table: Table
    truth: dict[Point, float]  # log speed
    draws: dict[Point, list[float]]  # log speeds
    residuals: list[float]
    took_s: dict[Point, float]
    failed: set[Point]
    chance: random.Random
    budget_s: float
    advised: tuple[dict[str, Value], ...] = ()  # as starts, by rules of other networks
    flat: bool = False
    spent_s: float = 0.0
    _taken: dict[Point, int] = field(default_factory=dict)

    @property
    def default(self) -> Point:
        return self.table.default

    @property
    def is_over(self) -> bool:
        return self.spent_s >= self.budget_s

    def fits(self, point: Point) -> bool:
        return self.spent_s + self.took_s[point] <= self.budget_s

    def look(self, point: Point) -> float | None:
        """The log speed of another launch. After the recorded ones come the true speed and a recorded deviation: their
        own mean once more would say the same error again and again."""
        end_s = self.spent_s + self.took_s[point]
        self.spent_s = min(end_s, OVER * self.budget_s)
        if point in self.failed or end_s > self.spent_s:
            return None
        if self.flat:
            return self.chance.choice(self.residuals)
        known, number = self.draws[point], self._taken.get(point, 0)
        self._taken[point] = number + 1
        if number < len(known):
            return known[number]
        return self.truth[point] + self.chance.choice(self.residuals)

    @property
    def best(self) -> float:
        return max(self.truth.values())


@dataclass(frozen=True, kw_only=True)
class Result:
    chosen: Point
    answered: Point | None = None  # what the answer names, where a method proves what it names
    covers: bool | None = None  # whether the interval of the gain holds the true one
    named: bool | None = None  # whether a setup was said to be better than the default


def replays(table: Table, seeds: int, share: float, *, flat: bool = False) -> Iterable[Replay]:
    centered, advised = _centered(table), _advised(table)
    residuals = _residuals(centered)
    for seed in range(seeds):
        chance = random.Random(seed)
        draws: dict[Point, list[float]] = {}
        held: dict[Point, list[float]] = {}
        for point, values in centered.items():
            mixed = chance.sample(values, len(values))
            cut = max(1, len(mixed) // 2)
            draws[point], held[point] = mixed[:cut], mixed[cut:] or mixed
        took_s = {point: _median_s(rounds) for point, rounds in table.rounds.items() if rounds}
        yield Replay(
            table=table,
            truth=dict.fromkeys(centered, 0.0) if flat else _shrunk(table, held, residuals),
            draws=draws,
            residuals=residuals,
            took_s=took_s,
            failed={point for point in took_s if point not in centered},
            chance=chance,
            budget_s=share * math.fsum(took_s.values()),
            advised=advised,
            flat=flat,
        )


def _advised(table: Table) -> tuple[dict[str, Value], ...]:
    """What the rules of advice call best in each framework, if no record of this network had made any."""
    if "words" not in table.head:
        return ()
    key = json.dumps([table.head["model"], table.head["words"]])
    if key not in _ADVISED:
        facts, model = table.advice_facts(), table.head["model"]
        others = [each for each in tables(*published(RECORDS)) if each.model != model]
        _ADVISED[key] = tuple(dict(setup) for setup in starts(facts, model=model, rules=rules_from(others)))
    return _ADVISED[key]


_ADVISED: dict[str, tuple[dict[str, Value], ...]] = {}


def _median_s(rounds: list[dict[str, Any]]) -> float:
    return float(np.median([each["took_s"] for each in rounds]))


def _centered(table: Table) -> dict[Point, list[float]]:
    """Log speeds without what all points of a round share: a slow round must not make its points slow."""
    good = {
        p: {r["round"]: math.log(r["samples_per_s"]) for r in rounds if "samples_per_s" in r}
        for p, rounds in table.rounds.items()
    }
    good = {
        point: values
        for point, values in good.items()
        if values and not any("failed" in r for r in table.rounds[point])
    }
    means = {point: math.fsum(values.values()) / len(values) for point, values in good.items()}
    shifts: dict[int, list[float]] = {}
    for point, values in good.items():
        for number, value in values.items():
            shifts.setdefault(number, []).append(value - means[point])
    shift = {number: float(np.median(values)) for number, values in shifts.items()}
    return {point: [value - shift[number] for number, value in values.items()] for point, values in good.items()}


def _residuals(centered: dict[Point, list[float]]) -> list[float]:
    """Deviations of launches from their point's mean, widened for the mean that they take part in."""
    found = [
        (value - float(np.mean(values))) * math.sqrt(len(values) / (len(values) - 1))
        for values in centered.values()
        if len(values) > 1
        for value in values
    ]
    return found or [0.0]


def _shrunk(table: Table, held: dict[Point, list[float]], residuals: list[float]) -> dict[Point, float]:
    """The mean of the held-out rounds, drawn towards an additive fit by as much as its noise demands."""
    points = [point for point, values in held.items() if values]
    means = np.array([float(np.mean(held[point])) for point in points])
    counts = np.array([len(held[point]) for point in points])
    noise = float(np.var(residuals)) / counts
    columns: dict[tuple[Any, ...], int] = {}
    rows: list[list[int]] = []
    for point in points:
        framework, values = table.framework(point), table.resolved(point)
        terms: list[tuple[Any, ...]] = [(framework,)]
        for axis, value in zip(table.axes, values, strict=True):
            terms += [(axis.name, value), (framework, axis.name, value)]
        rows.append([columns.setdefault(term, len(columns)) for term in terms])
    design = np.zeros((len(points), len(columns)))
    for number, row in enumerate(rows):
        design[number, row] = 1.0
    weights = 1 / (noise + 0.01)
    ridge = np.linalg.solve(design.T @ (weights[:, None] * design) + np.eye(len(columns)), design.T @ (weights * means))
    fitted = design @ ridge
    between = max(0.0, float(np.mean((means - fitted) ** 2 - noise)))
    trust = between / (between + noise)
    found = fitted + trust * (means - fitted)
    truth = dict(zip(points, map(float, found), strict=True))
    return truth if table.default in truth else {**truth, table.default: float(np.mean(held[table.default] or [0.0]))}


# Methods. Each spends the seconds of a replay and returns what it chose.


def ours(replay: Replay) -> Result:
    table = replay.table
    search = Search(
        landscape=table,
        starts=_starts(table, replay.failed, replay.advised),
        noise_sd=0.05 if table.facts.device == "cpu" else 0.004,
        expected_s=lambda point: _guess_s(table, point),
    )
    while True:
        ask = search.next(replay.budget_s - _for_finals(search, replay) - replay.spent_s)
        if ask is None:
            break
        search.tell(_seen(replay, ask.kind, ask.point))
    contest = plan_finals(
        table.default,
        search.finalists(3, lambda point: _simpler(replay, point), lambda _point: False),
        noise=search.noise,
        time_s=replay.budget_s - replay.spent_s,
        cost_s=search.cost_s,
        seed=replay.chance.randrange(2**31),
    )
    rounds: list[dict[Point, float]] = []
    for order in contest.order:
        seen: list[Seen] = []
        for point in order:
            if replay.spent_s + 0.5 * search.cost_s(point) > replay.budget_s:
                break
            seen.append(_seen(replay, "final", point))
        for each in seen:
            search.tell(each)
        if len(seen) < len(order):
            break
        rounds.append({each.point: math.exp(each.value) for each in seen if each.value is not None})
    if search.good:
        search.fit()
    judged = judge(
        contest.points,
        rounds,
        changes=lambda point: sum(a != b for a, b in zip(point, table.default, strict=True)),
        expected=lambda point: float(search.model.predict([point]).mean[0]),
        spread=Spread.of(_repeats(search.seen)),
    )
    covers = None
    if len(rounds) >= FEWEST_ROUNDS and judged.ratios:
        top = max(judged.ratios, key=lambda point: judged.ratios[point].median)
        true = math.exp(replay.truth[top] - replay.truth[table.default])
        covers = judged.ratios[top].low <= true <= judged.ratios[top].high
    # Who wants a setup though none is shown to be better takes the one that is expected to be the best.
    chosen = judged.best if judged.answer == "better" else (search.best(1) or [table.default])[0]
    return Result(chosen=chosen, answered=judged.best, covers=covers, named=judged.answer == "better")


def _for_finals(search: Search, replay: Replay) -> float:
    """The time that is kept for the finals: a share, and at least what the fewest rounds take, if that leaves half of
    it to the search."""
    share_s, least_s = FINALS_SHARE * replay.budget_s, search.least_finals_s()
    return max(share_s, least_s) if least_s < replay.budget_s / 2 else share_s


def _repeats(looks: Iterable[Seen]) -> Iterable[list[float]]:
    groups: dict[Point, list[float]] = {}
    for seen in looks:
        if seen.value is not None:
            groups.setdefault(seen.point, []).append(seen.value)
    return groups.values()


def _simpler(replay: Replay, point: Point) -> Iterable[Point]:
    """The points of the table with one change fewer."""
    for place, (axis, plain) in enumerate(zip(replay.table.axes, replay.default, strict=True)):
        near = (*point[:place], plain, *point[place + 1 :])
        if near != point and axis.name != "framework" and near in replay.took_s:
            yield near


def _seen(replay: Replay, kind: Any, point: Point) -> Seen:
    value = replay.look(point)
    return Seen(kind=kind, point=point, value=value, took_s=replay.took_s[point], log_speed=value)


def _guess_s(table: Table, point: Point) -> float:
    """As the product guesses before it knows: a start, and what some values add to it."""
    seconds = 5.0
    for axis, value in zip(table.axes, point, strict=True):
        tuning = AXES[axis.name].tuning
        seconds += tuning.startup_s.get(value, 0.0) if isinstance(tuning, Tuning) else 0.0
    return seconds


def _starts(table: Table, failed: set[Point] = frozenset(), advised: Iterable[dict[str, Value]] = ()) -> list[Point]:
    """As the product begins. A table holds a part of a space: where it has none of a framework's starts, the point that
    is nearest to its default."""
    found = starts_of(table, advised=advised)
    place = next((number for number, axis in enumerate(table.axes) if axis.name == "framework"), None)
    for value in () if place is None else table.axes[place].values:
        of_framework = [point for point in table.points if point[place] == value and point not in failed]
        if of_framework and not any(point[place] == value for point in found):
            found.append(min(of_framework, key=lambda point: sum(a != b for a, b in zip(point, found[0], strict=True))))
    return found


def at_random(replay: Replay) -> Result:
    best, chosen = -math.inf, replay.default
    for point in replay.chance.sample(list(replay.took_s), len(replay.took_s)):
        if not replay.fits(point):
            break
        value = replay.look(point)
        if value is not None and value > best:
            best, chosen = value, point
    return Result(chosen=chosen)


def successive_halving(replay: Replay) -> Result:
    mean_s = math.fsum(replay.took_s.values()) / len(replay.took_s)
    launches = int(replay.budget_s / mean_s)
    rungs = 3
    size = max(2, launches // rungs)
    field_ = replay.chance.sample(list(replay.took_s), min(size, len(replay.took_s)))
    sums: dict[Point, list[float]] = {point: [] for point in field_}
    repeats = 1
    while field_ and not replay.is_over:
        for point in field_:
            for _ in range(repeats):
                if replay.fits(point) and (value := replay.look(point)) is not None:
                    sums[point].append(value)
        field_ = sorted((p for p in field_ if sums[p]), key=lambda p: -float(np.mean(sums[p])))[
            : max(1, len(field_) // 2)
        ]
        if len(field_) == 1:
            break
        repeats *= 2
    return Result(chosen=field_[0] if field_ else replay.default)


def one_factor(replay: Replay) -> Result:
    """Change one axis of the default at a time, then take the best value of each, if that point exists."""
    base = replay.look(replay.default)
    best = list(replay.default)
    for place, axis in enumerate(replay.table.axes):
        top = base if base is not None else -math.inf
        for value in axis.values[1:]:
            point = tuple(value if number == place else old for number, old in enumerate(replay.default))
            if point in replay.took_s and replay.fits(point):
                found = replay.look(point)
                if found is not None and found > top:
                    top, best[place] = found, value
    return Result(chosen=_nearest(replay, tuple(best)))


def greedy(replay: Replay) -> Result:
    """From the default of the best framework, one axis after the other, by rank; what is better stays."""
    begins = [replay.default, *_starts(replay.table, replay.failed, replay.advised)]
    looks = {point: replay.look(point) for point in dict.fromkeys(begins) if replay.fits(point)}
    good = {point: value for point, value in looks.items() if value is not None}
    now = max(good, key=lambda point: good[point]) if good else replay.default
    top = good.get(now, -math.inf)
    for place in sorted(range(len(replay.table.axes)), key=lambda number: replay.table.axes[number].rank):
        if replay.table.axes[place].name == "framework":
            continue
        for value in replay.table.axes[place].values:
            point = tuple(value if number == place else old for number, old in enumerate(now))
            if point != now and point in replay.took_s and replay.fits(point):
                found = replay.look(point)
                if found is not None and found > top:
                    top, now = found, point
    return Result(chosen=now)


def _nearest(replay: Replay, wanted: Point) -> Point:
    good = [point for point in replay.took_s if point not in replay.failed]
    return min(good, key=lambda point: sum(a != b for a, b in zip(point, wanted, strict=True)))


def tpe(replay: Replay) -> Result:
    """Optuna's sampler on the list of frameworks and, below each, its axes; combinations that are not in the table are
    pruned without cost."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=replay.chance.randrange(2**31), multivariate=True, group=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    best, chosen, idle = -math.inf, replay.default, 0
    while not replay.is_over and idle < 300:
        trial = study.ask()
        words = [trial.suggest_categorical(axis.name, [str(v) for v in axis.values]) for axis in replay.table.axes]
        point = tuple(
            next(v for v in axis.values if str(v) == word) for axis, word in zip(replay.table.axes, words, strict=True)
        )
        if point not in replay.took_s:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            idle += 1
            continue
        if not replay.fits(point):
            break
        idle = 0
        value = replay.look(point)
        study.tell(trial, value if value is not None else -20.0)
        if value is not None and value > best:
            best, chosen = value, point
    return Result(chosen=chosen)


METHODS: dict[str, Callable[[Replay], Result]] = {
    "random": at_random,
    "successive halving": successive_halving,
    "one factor at a time": one_factor,
    "greedy by axis": greedy,
    "Optuna TPE": tpe,
    "deepstone": ours,
}


# Landscapes with a known truth.


def synthetic(seed: int, *, noise: float, interaction: float = 0.04, rounds: int = 40) -> Table:
    """240 conditional points: three frameworks, five axes of which two have meaning in one framework only."""
    chance = random.Random(seed)
    axes = (
        SearchAxis(name="threads", values=("auto", 1, 4, 8), rank=1, ordered=True),
        SearchAxis(name="framework", values=("auto", "b", "c"), rank=4, ordered=False),
        SearchAxis(name="engine", values=("auto", "native"), rank=6, ordered=False),
        SearchAxis(name="precision", values=("auto", "bf16-mixed", "bf16"), rank=7, ordered=False),
        SearchAxis(name="compile", values=("auto", "default", "max-autotune"), rank=8, ordered=False),
        SearchAxis(name="layout", values=("auto", "nhwc"), rank=9, ordered=False),
    )
    frameworks = {name: chance.gauss(0, 0.2) for name in ("auto", "b", "c")}
    shared = {(a.name, v): chance.gauss(0, 0.15) for a in axes for v in a.values[1:] if a.name != "framework"}
    own: dict[Any, float] = {}
    pairs: dict[Any, float] = {}
    table = Table(
        head={"model": f"synthetic {seed}", "noise": noise},
        axes=axes,
        facts=Facts(device="cpu" if noise > 0.01 else "gpu", frameworks=("auto",)),
    )
    for point in product(*(axis.values for axis in axes)):
        named = dict(zip((axis.name for axis in axes), point, strict=True))
        if named["framework"] != "auto" and named["engine"] != "auto":
            continue
        if named["framework"] == "c" and named["compile"] != "auto":
            continue
        if named["precision"] == "bf16" and named["compile"] == "max-autotune":
            continue
        effects = [(name, value) for name, value in named.items() if value != "auto" and name != "framework"]
        log_speed = 4.0 + frameworks[str(named["framework"])]
        for effect in effects:
            log_speed += shared[effect] + own.setdefault((named["framework"], effect), chance.gauss(0, 0.06))
        for number, one in enumerate(effects):
            for other in effects[number + 1 :]:
                log_speed += pairs.setdefault((named["framework"], one, other), chance.gauss(0, interaction))
        took_s = {"auto": 5.0, "b": 9.0, "c": 7.0}[str(named["framework"])] + (
            10.0 if named["compile"] != "auto" else 0.0
        )
        table.rounds[point] = [
            {"round": number, "samples_per_s": math.exp(log_speed + chance.gauss(0, noise)), "took_s": took_s}
            for number in range(rounds)
        ]
    return table


def measured(tables: list[Table], methods: dict[str, Any], seeds: int, share: float) -> dict[str, dict[str, float]]:
    """The median and the tenth percentile of each method, over all tables and seeds."""
    found: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        speeds: list[float] = []
        answered: list[float] = []
        covers: list[bool] = []
        false: list[bool] = []
        launches: list[float] = []
        for table in tables:
            for replay in replays(table, seeds, share):
                result = method(replay)
                speeds.append(math.exp(replay.truth.get(result.chosen, -9.0) - replay.best))
                if result.answered is not None:
                    answered.append(math.exp(replay.truth.get(result.answered, -9.0) - replay.best))
                launches.append(replay.spent_s / replay.budget_s)
                if result.covers is not None:
                    covers.append(result.covers)
            if method is ours:
                for replay in replays(table, seeds, share, flat=True):
                    false.append(bool(method(replay).named))
        found[name] = {
            "speed": float(np.median(speeds)),
            "p10": float(np.quantile(speeds, 0.1)),
            **({"answered": float(np.median(answered))} if answered else {}),
            "spent": float(np.mean(launches)),
            **({"covers": float(np.mean(covers))} if covers else {}),
            **({"decided": len(covers) / len(speeds)} if method is ours else {}),
            **({"false": float(np.mean(false))} if false else {}),
        }
    return found


def at_shares(
    heading: str, tables: list[Table], methods: dict[str, Any], seeds: int, shares: Iterable[float]
) -> dict[str, dict[str, dict[str, float]]]:
    """By share of the time."""
    answers: dict[str, dict[str, dict[str, float]]] = {}
    for share in shares:
        answers[f"{share:g}"] = measured(tables, methods, seeds, share)
        show(f"{heading}, {100 * share:g} % of the time", answers[f"{share:g}"])
    return answers


def show(title: str, found: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    print(f"{'method':24}{''.join(f'{column:>9}' for column in COLUMNS)}")
    for name, row in found.items():
        cells = [f"{row[key]:9.3f}" if key in row else f"{'':9}" for key in COLUMNS]
        print(f"{name:24}{''.join(cells)}")


def main() -> None:
    options = _options()
    methods = {name: method for name, method in METHODS.items() if not options.only or name in options.only}
    if importlib.util.find_spec("optuna") is None and methods.pop("Optuna TPE", None):
        print("optuna is not installed, so its row is missing: pip install optuna", file=sys.stderr)
    answers: dict[str, Any] = {}
    if options.synthetic:
        for title, settings in {
            "noise 8 %": {"noise": 0.08},
            "noise 8 %, strong interactions": {"noise": 0.08, "interaction": 0.12},
            "noise 0.3 %": {"noise": 0.003},
        }.items():
            tables = [synthetic(seed, **settings) for seed in range(options.landscapes)]
            heading = f"synthetic, {title}: {len(tables)} landscapes of {len(tables[0].points)} points"
            answers[title] = at_shares(heading, tables, methods, 1, options.shares)
    paths = options.tables or ([] if options.synthetic else sorted(RESULTS.glob("tune-table-*.json")))
    if not paths and not options.synthetic:
        print("no table: record one with bench/tune_table.py, or use --synthetic", file=sys.stderr)
        raise SystemExit(2)
    for path in paths:
        table = Table.read(path)
        noise = float(np.std(_residuals(_centered(table))))
        heading = f"{path.name}: {len(table.points)} points, noise {100 * noise:.1f} %, {options.seeds} seeds"
        answers[path.name] = at_shares(heading, [table], methods, options.seeds, options.shares)
    if options.output:
        options.output.write_text(json.dumps(answers, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--landscapes", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--share", dest="shares", type=float, action="append", help="of one launch at every point; may be repeated"
    )
    parser.add_argument("--only", action="append", help="only this method; may be repeated")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    options.shares = options.shares or [0.1, 0.5]
    return options


if __name__ == "__main__":
    main()
