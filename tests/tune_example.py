"""A made-up answer of `deepstone tune`, for tests of what shows it."""

from __future__ import annotations

from collections.abc import Mapping

from factory import sha

from deepstone.absent import Absent
from deepstone.results import codec, tune
from deepstone.results.findings import Finding
from deepstone.results.identity import run_id
from deepstone.results.quantity import Quantity
from deepstone.setups.axes import Value

DEFAULT: Mapping[str, Value] = {"framework": "torch"}
BEST: Mapping[str, Value] = {"framework": "jax", "precision": "bf16-mixed"}
OTHER: Mapping[str, Value] = {"framework": "torch", "precision": "bf16-mixed", "layout": "nhwc", "compile": "default"}
NO_METER = Absent("no energy meter")
NOT_KNOWN = Absent("not measured")


def near(median: float, share: float = 0.01, n: int = 6) -> Quantity:
    return Quantity.of(median=median, low=median * (1 - share), high=median * (1 + share), n=n)


def why(
    axis: str, default: str, best: str, contribution: Quantity, *, added: Quantity, removed: Quantity, estimated=False
) -> tune.Why:
    return tune.Why(
        axis=axis,
        default=default,
        best=best,
        contribution=contribution,
        added=tune.AxisRatio(ratio=added, estimated=False),
        removed=tune.AxisRatio(ratio=removed, estimated=estimated),
    )


def look(
    kind: tune.LookKind, setup: Mapping[str, Value], speed: float | Absent, began_s: float, round: int | None = None
) -> tune.Look:
    ok = not isinstance(speed, Absent)
    return tune.Look(
        kind=kind,
        setup=dict(setup),
        samples_per_s=speed,
        samples_per_j=NO_METER,
        peak_bytes=2**30 if ok else NOT_KNOWN,
        outcome="ok" if ok else "oom",
        began_s=began_s,
        took_s=5.5,
        run=run_id(sha(str(sorted(setup.items()))), int(began_s) + 1),
        round=round,
    )


def log_of(looks: list[tune.Look], checked: list[tune.SameSetup]) -> tune.TuneLog:
    """A search that is not finished."""
    return tune.TuneLog(
        name="a",
        model="resnet50",
        command=[],
        started_at="2026-11-15T03:10:00.000000Z",
        finished_at=Absent("not finished"),
        budget_s=60.0,
        spent_s=2.0,
        calls=1,
        looks=looks,
        same=checked,
    )


def _looks() -> list[tune.Look]:
    searched: list[tuple[tune.LookKind, Mapping[str, Value], float | Absent]] = [
        ("start", DEFAULT, 98.0),
        ("start", {"framework": "jax"}, 170.0),
        ("search", {**DEFAULT, "layout": "nhwc"}, 140.0),
        ("search", {**DEFAULT, "batch": 512}, Absent("oom: the device has too little memory")),
        ("search", OTHER, 715.0),
        ("search", BEST, 735.0),
        ("sentinel", DEFAULT, 101.0),
        ("repeat", OTHER, 708.0),
    ]
    looks = [look(kind, setup, speed, 6.0 * number) for number, (kind, setup, speed) in enumerate(searched)]
    for round in range(1, 7):
        for setup, speed in ((DEFAULT, 99.0), (BEST, 719.0), (OTHER, 710.0)):
            looks.append(look("final", setup, speed + round, 6.0 * len(looks), round))
    looks.append(look("explain", {**DEFAULT, "precision": "bf16-mixed"}, 270.0, 6.0 * len(looks)))
    return looks


def tuned() -> tune.Tuned:
    looks = _looks()
    finals = [
        tune.Finalist(
            setup=dict(setup),
            samples_per_s=near(speed),
            samples_per_j=NO_METER,
            peak_bytes=2**30,
            ratio=near(speed / 102.0),
            rounds=[each.samples_per_s for each in looks if each.kind == "final" and each.setup == setup],
            runs=[each.run for each in looks if each.kind == "final" and each.setup == setup and each.run],
            is_default=setup is DEFAULT,
            is_best=setup is BEST,
        )
        for setup, speed in ((DEFAULT, 102.0), (BEST, 722.0), (OTHER, 713.0))
    ]
    default, best, _ = (
        tune.TunedSetup(
            setup=final.setup,
            samples_per_s=final.samples_per_s,
            samples_per_j=final.samples_per_j,
            peak_bytes=final.peak_bytes,
            runs=final.runs,
        )
        for final in finals
    )
    return tune.Tuned(
        objective=tune.TuneObjective(name="throughput"),
        limits=[],
        budget=tune.TuneBudget(asked_s=300.0, spent_s=281.5, calls=1, launches=len(looks)),
        space=tune.TuneSpace(
            setups=412,
            is_estimate=False,
            axes=[
                tune.SpaceAxis(name="framework", values=["torch", "jax"]),
                tune.SpaceAxis(name="precision", values=["fp32", "bf16-mixed"]),
                tune.SpaceAxis(name="layout", values=["nchw", "nhwc"]),
                tune.SpaceAxis(name="compile", values=["off", "default"]),
            ],
            fixed=[tune.FixedAxis(name="seed", why="fixes the data; it is no way to be faster")],
            excluded=[tune.Excluded(reason="jax does not honour the axis layout", setups=61)],
            noise=0.02,
        ),
        answer="better",
        default=default,
        best=best,
        ratio=near(722.0 / 102.0),
        finals=finals,
        rounds=6,
        same=tune.SameTraining(
            level="close",
            ok=True,
            setups=[
                tune.SameSetup(
                    setup=dict(BEST),
                    ok=True,
                    gradient=tune.SameMeasure(value=0.03, tolerance=0.1),
                    loss=tune.SameMeasure(value=0.2, tolerance=1.0),
                    update=tune.SameMeasure(value=0.006, tolerance=0.1),
                    why_not="",
                )
            ],
            given_up="products in bf16",
        ),
        given_up="products in bf16",
        why=[
            why("precision", "auto", "bf16-mixed", near(3.4), added=near(2.7), removed=near(4.2)),
            why("framework", "torch", "jax", near(2.1), added=near(1.7), removed=near(2.6, 0.1), estimated=True),
        ],
        together=near(0.99),
        also_within=[dict(OTHER)],
        no_effect=[tune.AxisEffect(axis="inter_threads", value="auto", ratio=near(1.001, 0.005))],
        not_decided=["isa"],
        bound=NOT_KNOWN,
        batch_free=tune.BatchFree(
            batch=1024,
            best=tune.TunedSetup(
                setup={**BEST, "batch": 1024},
                samples_per_s=near(799.0),
                samples_per_j=NO_METER,
                peak_bytes=2**32,
                runs=[],
            ),
            ratio=near(7.8),
            updates_per_epoch_ratio=0.25,
        ),
        looks=looks,
    )


def tune_finding() -> Finding:
    """As the command prints it."""
    return codec.as_bare_finding(
        {
            "schema": 1,
            "kind": "tune",
            "model": "resnet50",
            "outcome": "ok",
            "command": ["deepstone", "tune", "resnet50", "batch=256", "--budget", "300s"],
            **tuned().to_json(),
        }
    )
