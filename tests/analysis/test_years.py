"""Figures and sentences by year of release: every version in its year, and nothing claimed that was not shown."""

from __future__ import annotations

from typing import Any

import pytest
from factory import JsonRecord
from measured_runs import rounds, run
from of_json import chart, default_charts, statements

from deepstone.absent import Absent
from deepstone.errors import UsageError

YEARS = {"name": "years", "title": "By year", "form": "lines", "x": "year", "panels": "phase"}
BASE: dict[str, Any] = {"framework": "torch", "batch": 32, "phase": "train"}
RELEASES = {
    "torch": ("2.13.0", 2026),
    "torch@1.1.0": ("1.1.0", 2019),
    "tensorflow": ("2.21.0", 2026),
    "tensorflow@1.12.0": ("1.12.0", 2018),
    "tensorflow@1.12.0-intel": ("1.12.0", 2018),
    "tensorflow@1.2.1": ("1.2.1", 2017),
    "chainer": ("7.8.1", 2022),
}
SPEEDS = {
    "torch": 40.0,
    "torch@1.1.0": 30.0,
    "tensorflow": 30.0,
    "tensorflow@1.12.0": 10.0,
    "tensorflow@1.12.0-intel": 40.0,
    "tensorflow@1.2.1": 6.0,
    "chainer": 5.0,
}
ALL_SAME = {"alexnet-owt": dict.fromkeys(RELEASES, True)}


def release(asked: str, *images_per_s: float, phase: str = "train", **settings: Any) -> list[JsonRecord]:
    """Rounds of one version of a framework, as its record tells it: the variant is in what was asked for alone."""
    version, year = RELEASES[asked]
    name = asked.partition("@")[0]
    effective = {"framework": f"{name}@{version}"}
    found = rounds(
        *images_per_s, framework=asked, version=version, phase=phase, batch=32, effective=effective, **settings
    )
    for record in found:
        record["environment"]["year"] = year
    return found


def all_of_them(phase: str = "train", times: float = 1.0) -> list[JsonRecord]:
    return [
        record
        for asked, speed in SPEEDS.items()
        for record in release(asked, *(times * speed * share for share in (1.0, 1.01, 0.99, 1.0)), phase=phase)
    ]


def drawn(records: list[JsonRecord], **changes: Any) -> dict[str, Any]:
    found = chart({**YEARS, **changes}, records, BASE)
    assert not isinstance(found, Absent), found
    return found


def sentences(records: list[JsonRecord], same: dict[str, dict[str, bool]] = ALL_SAME, **state: Any) -> list[str]:
    found = statements(records, state={"base": BASE, "sameness": same, **state})
    return [each["text"] for each in found]


class TestFigure:
    def test_every_version_stands_in_its_year_with_its_name(self) -> None:
        found = drawn(all_of_them())
        named = {point["label"]: point["x"] for series in found["series"] for point in series["points"]}
        assert named == {
            "torch 1.1.0": 2019,
            "torch 2.13.0": 2026,
            "tensorflow 1.2.1": 2017,
            "tensorflow 1.12.0": 2018,
            "tensorflow 1.12.0-intel": 2018,
            "tensorflow 2.21.0": 2026,
            "chainer 7.8.1": 2022,
        }
        assert found["x"] == {"label": "year of release", "scale": "linear", "unit": "year"}

    def test_versions_of_a_framework_are_one_series_whatever_was_measured_first(self) -> None:
        records = all_of_them()
        for order in (records, records[::-1]):
            series = drawn(order)["series"]
            assert [each["name"] for each in series] == ["torch", "tensorflow", "chainer"]
            assert [point["label"].split()[1] for point in series[1]["points"]] == [
                "1.2.1", "1.12.0", "1.12.0-intel", "2.21.0",
            ]  # fmt: skip

    def test_a_variant_is_apart_from_the_line(self) -> None:
        points = [point for series in drawn(all_of_them())["series"] for point in series["points"]]
        assert [point["label"] for point in points if point.get("apart")] == ["tensorflow 1.12.0-intel"]

    def test_a_panel_for_each_phase(self) -> None:
        found = drawn([*all_of_them("forward", 3.0), *all_of_them()])
        assert list(dict.fromkeys(series["panel"] for series in found["series"])) == ["training", "forward"]
        speeds = {
            (series["panel"], point["label"]): point["y"]["median"]
            for series in found["series"]
            for point in series["points"]
        }
        assert speeds["training", "torch 2.13.0"] == pytest.approx(40.0)
        assert speeds["forward", "torch 2.13.0"] == pytest.approx(120.0)

    def test_whose_year_is_not_known_is_left_out_by_name(self) -> None:
        records = all_of_them()
        for record in records:
            if record["setup"]["requested"]["framework"] == "torch@1.1.0":
                record["environment"]["year"] = {"absent": "no recipe knows the year of torch 1.1.0"}
        found = drawn(records)
        assert "torch 1.1.0" not in str(found["series"])
        assert "Left out: torch 1.1.0 (no recipe knows the year of torch 1.1.0)." in found["caption"]

    def test_records_from_before_there_were_years_are_told(self) -> None:
        found = chart(YEARS, rounds(40, 41, framework="torch", batch=32), BASE)
        assert isinstance(found, Absent)
        assert "torch 2.13.0" in found.reason
        assert "before records told the year" in found.reason

    def test_what_failed_is_a_gap_with_its_name(self) -> None:
        failed = release("chainer", 5.0, outcome="crashed")
        found = drawn([*(record for record in all_of_them() if "chainer" not in str(record["setup"])), *failed])
        (gap,) = found["gaps"]
        assert (gap["x"], gap["series"], gap["panel"]) == (2022, "chainer", "training")
        assert gap["why"].startswith("chainer 7.8.1: crashed")
        assert gap["why"] in found["caption"]  # no point of its series would show where the gap is

    def test_it_says_briefly_how_it_was_made(self) -> None:
        found = drawn([*all_of_them(), *all_of_them("forward", 3.0)])
        assert len(found["commands"]) == 2
        listed = next(word for word in found["commands"][0].split() if word.startswith("framework="))
        assert set(listed.removeprefix("framework=").split(",")) == set(RELEASES)
        assert "What the figure does not name is as in the base: alexnet-owt batch=32." in found["caption"]

    def test_years_are_lines(self) -> None:
        with pytest.raises(UsageError, match="year"):
            chart({"form": "bars", "x": "year"}, all_of_them())
        with pytest.raises(UsageError, match="year"):
            chart({"form": "lines", "series": "year"}, all_of_them())

    def test_bars_tell_two_builds_of_a_version_apart(self) -> None:
        found = drawn(all_of_them(), form="bars", x="framework", panels="")
        places = [point["x"] for series in found["series"] for point in series["points"]]
        assert places == [
            "torch 2.13.0", "torch 1.1.0",
            "tensorflow 2.21.0", "tensorflow 1.12.0", "tensorflow 1.12.0-intel", "tensorflow 1.2.1",
            "chainer",
        ]  # fmt: skip

    def test_without_a_study_versions_are_series_of_their_own(self) -> None:
        found = {each["name"]: each for each in default_charts(all_of_them())}
        names = [series["name"] for series in found["frameworks"]["series"]]
        assert len(names) == len(set(names)) == len(RELEASES)
        assert len(found["speed"]["series"]) == len(RELEASES)
        assert found["years"]["x"]["unit"] == "year"
        assert "years" not in {each["name"] for each in default_charts(release("torch", 40, 41))}


class TestSentences:
    def test_the_best_of_old_and_new(self) -> None:
        (best,) = [text for text in sentences(all_of_them()) if "fastest of" in text]
        assert best.startswith(
            "The fastest of 2017 to 2021, tensorflow 1.12.0-intel of 2018, against the fastest of 2026, torch 2.13.0: "
            "no difference was shown when alexnet-owt trains, 1.00x ("
        )

    def test_another_build_of_a_version(self) -> None:
        (builds,) = [text for text in sentences(all_of_them()) if "another build" in text]
        assert "4.00x (" in builds
        assert "with tensorflow 1.12.0-intel as with tensorflow 1.12.0" in builds

    def test_versions_of_a_framework(self) -> None:
        found = [text for text in sentences(all_of_them()) if "as fast as with tensorflow 1.2.1 of 2017" in text]
        assert found[0].startswith("tensorflow 2.21.0 of 2026: alexnet-owt trains 5.00x (")
        assert "between them 1.12.0" in found[0]

    def test_frameworks_are_told_with_their_years(self) -> None:
        assert any(
            text.startswith("chainer 7.8.1 of 2022: alexnet-owt trains 0.125x (") and "torch 2.13.0 of 2026" in text
            for text in sentences(all_of_them())
        )

    def test_nothing_is_compared_that_was_not_checked(self) -> None:
        unchecked = {"alexnet-owt": {"torch": True, "tensorflow": True}}
        found = sentences(all_of_them(), unchecked)
        assert not any("fastest of" in text or "another build" in text for text in found)
        told = [text for text in found if "Measured, not compared" in text and "tensorflow 1.2.1" in text]
        assert "framework=torch,tensorflow@1.2.1" in told[0]

    def test_a_version_that_computes_something_else_stays_out(self) -> None:
        same = {"alexnet-owt": {**ALL_SAME["alexnet-owt"], "tensorflow@1.12.0-intel": False}}
        found = [text for text in sentences(all_of_them(), same) if "1.12.0-intel" in text]
        assert found
        assert all("do not compute the same" in text or "Forward" in text for text in found)

    def test_a_wide_interval_says_nothing_about_the_years(self) -> None:
        records = [*release("torch", 40, 41, 39), *release("tensorflow@1.12.0-intel", 20, 70, 40)]
        assert not any("fastest of" in text for text in sentences(records))

    def test_no_version_is_taken_for_a_setting(self) -> None:
        assert not any("environment" in text for text in sentences(all_of_them()))

    def test_an_upgrade_of_what_a_bare_name_means_is_no_setting(self) -> None:
        records = [*rounds(40, 41, batch=32), *rounds(20, 21, batch=32, environment="older", version="2.11.0")]
        assert not any("environment=" in text for text in sentences(records, {}))

    def test_what_is_not_installed_comes_with_the_command_that_adds_it(self) -> None:
        found = sentences([run()], addable=["theano", "torch@1.1.0"])
        assert any("`deepstone env add theano torch@1.1.0` adds them." in text for text in found)
