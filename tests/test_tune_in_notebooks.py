"""`deepstone.tune`: the search as a function whose answer is an object."""

from __future__ import annotations

import inspect
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import deepstone
from deepstone import tuning
from deepstone.errors import DeepstoneError, MissingError, StoreError, UsageError
from deepstone.results.quantity import Quantity
from deepstone.results.tune import Look, TuneLimit
from deepstone.store.store import Store
from deepstone.tuner.wanted import Wanted
from deepstone.tuning import Tuning

FIXED = dict.fromkeys(
    ("processes", "compile", "isa", "inter_threads", "affinity", "engine", "precision", "threads"), "auto"
)
SCRIPT = {"launch_noise": 0.003, "by": {"layout=nhwc": {"faster": 1.5}}}
EXAMPLE = Path(__file__).parents[1] / "examples" / "tuning.py"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuning, list[Look], Path]:
    looks: list[Look] = []
    folder = tmp_path_factory.mktemp("tuning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPSTONE_FAKE", json.dumps(SCRIPT))
        patch.setenv("DEEPSTONE_CACHE", str(folder / "cache"))
        found = deepstone.tune(
            "cifarnet",
            budget="12s",
            same="any",
            store=folder / "store",
            on_look=looks.append,
            framework="fake",
            batch=8,
            accumulate=1,
            optimizer="momentum",
            space_to_depth="off",
            layout=["auto", "nhwc"],
            **FIXED,
        )
    return found, looks, folder


def test_the_answer_is_an_object(tuned: tuple[Tuning, list[Look], Path]) -> None:
    found, looks, folder = tuned
    assert found.is_better
    assert found.setup["layout"] == "nhwc"
    assert isinstance(found.ratio, Quantity)
    assert found.ratio.median == pytest.approx(1.5, rel=0.02)
    assert [look.run for look in looks] == [look.run for look in found.found.looks]
    stored = Store.open(folder / "store", create=False).findings.get(str(found.id))
    assert stored.content == found.found
    assert found.to_json()["kind"] == "tune"
    assert found.to_json()["doubts"] == found.found.doubts
    quiet = Tuning(found=replace(found.found, doubts=[]), finding=found.finding, _workload=found._workload)
    assert quiet.to_json()["doubts"] == []


def test_a_search_that_is_under_way_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner call is another process as far as the store can tell; when the outer one ends, it may begin."""
    monkeypatch.setenv("DEEPSTONE_FAKE", json.dumps(SCRIPT))
    monkeypatch.setenv("DEEPSTONE_CACHE", str(tmp_path / "cache"))
    stopped = RuntimeError("stopped by its caller")
    refused: list[StoreError] = []

    def search(on_look: Any) -> None:
        axes: Any = {**FIXED, "framework": "fake", "batch": 8, "layout": ["auto", "nhwc"]}
        deepstone.tune("cifarnet", budget="12s", same="any", store=tmp_path / "store", on_look=on_look, **axes)

    def again(look: Look) -> None:
        with pytest.raises(StoreError, match=f"process {os.getpid()} is at this very search") as caught:
            search(None)
        refused.append(caught.value)
        raise stopped

    for _ in range(2):
        with pytest.raises(RuntimeError, match="stopped by its caller"):
            search(again)
    assert len(refused) == 2
    assert not list((tmp_path / "store" / "claims").glob("*.claim"))


def test_looks_are_a_data_frame(tuned: tuple[Tuning, list[Look], Path]) -> None:
    frame = tuned[0].looks()
    assert len(frame) == len(tuned[0].found.looks)
    assert {"kind", "samples_per_s", "layout", "run"} <= set(frame.columns)
    assert frame.groupby("kind")["samples_per_s"].max()["final"] > 0


def test_it_writes_the_page_with_the_machine(tuned: tuple[Tuning, list[Look], Path]) -> None:
    path = tuned[0].page(tuned[2] / "tune.html")
    text = path.read_text()
    assert "layout=nhwc" in text
    assert "usable" in text or "cores" in text


def test_code_of_a_framework_that_has_none_is_refused(tuned: tuple[Tuning, list[Look], Path]) -> None:
    with pytest.raises(UsageError, match="fake"):
        tuned[0].code()
    with pytest.raises(UsageError, match="torch"):
        tuned[0].code("torch")


def test_where_nothing_keeps_the_limits_there_is_no_code(tuned: tuple[Tuning, list[Look], Path]) -> None:
    """As on the command line."""
    found = tuned[0]
    limits = [TuneLimit(name="memory", most=1.0)]
    answer = replace(found.found, answer="nothing better", best=found.found.default, limits=limits)
    nothing = Tuning(found=answer, finding=found.finding, _workload=found._workload)
    with pytest.raises(DeepstoneError, match="nothing was found within the limits"):
        nothing.code("torch")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"same": "clsoe"}, "close"),
        ({"objective": "speed"}, "throughput"),
        ({"layuot": "nhwc"}, "layout"),
        ({"budget": "soon"}, "soon"),
        ({"budget": ["5m"]}, "give seconds, or a text such as '5m'"),
        ({"budget": float("nan")}, "budget=nan"),
        ({"budget": 1}, "at least 5 s"),
        ({"same": None}, "same=None"),
        ({"objective": 3}, "objective=3"),
        ({"batch": None}, "batch=None"),
    ],
)
def test_mistakes_are_refused_before_anything_is_measured(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        deepstone.tune("cifarnet", framework="fake", **options)


def test_help_tells_the_options_and_no_budget_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(inspect.signature(deepstone.tune).parameters)
    assert names == list(inspect.signature(tuning.tune).parameters)
    assert names == ["model", "budget", "same", "objective", "limits", "store", "on_look", "axes"]
    text = str(deepstone.tune.__doc__)
    assert all(f"    {name} " in text for name in names)
    asked: list[Wanted] = []

    def stop(_workload: object, wanted: Wanted) -> None:
        asked.append(wanted)
        raise MissingError("stopped before anything is measured")

    monkeypatch.setattr(tuning, "check_meter", stop)
    with pytest.raises(MissingError, match="stopped"):
        deepstone.tune("cifarnet", framework="fake", budget=None, limits="memory=40G")
    assert asked[0].budget_s == 600.0
    assert [limit.name for limit in asked[0].limits] == ["memory"]


def test_energy_needs_a_meter() -> None:
    with pytest.raises(MissingError, match="energy"):
        deepstone.tune("cifarnet", framework="torch", device="cpu", objective="energy")


def test_without_pandas_one_line_says_how_to_get_it(
    tuned: tuple[Tuning, list[Look], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingError, match=r"pip install -e '\.\[notebook\]'"):
        tuned[0].looks()


def test_the_example_needs_no_pandas(
    tuned: tuple[Tuning, list[Look], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr(deepstone, "tune", lambda *_words, **_options: tuned[0])
    monkeypatch.chdir(tuned[2])
    monkeypatch.setattr(Tuning, "code", lambda _self: "# code")
    runpy.run_path(str(EXAMPLE))
    told = capsys.readouterr().out
    assert "final: " in told
    assert "the page: tune.html" in told


def test_importing_the_package_imports_no_tuner() -> None:
    import subprocess

    code = "import sys, deepstone; sys.exit('deepstone.tuning' in sys.modules or 'msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
