"""What a figure shows, and that it shows all of it and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import rounds, run
from of_json import chart, charts, default_charts

from deepstone.absent import Absent
from deepstone.analysis.cases import measure_named
from deepstone.analysis.figure_request import KEYS, MEASURES, read_figure
from deepstone.errors import UsageError

H200 = Path(__file__).parents[2] / "results" / "h200"


def drawn(figure: dict[str, Any], records, base=None) -> dict[str, Any]:
    found = chart(figure, records, base)
    assert not isinstance(found, Absent), found
    json.dumps(found, allow_nan=False)
    return found


def points(found: dict[str, Any]) -> dict[tuple[str, Any], float]:
    return {
        (series["name"], point["x"]): point["y"]["median"] for series in found["series"] for point in series["points"]
    }


def a_sweep():
    return [
        *rounds(100, 101, 99, batch=4),
        *rounds(150, 151, 149, batch=16),
        *rounds(160, 159, 161, batch=64),
        run(outcome="oom", batch=256),
        *rounds(90, 91, 92, batch=4, layout="nhwc"),
        *rounds(300, 301, 302, batch=4, phase="forward"),
    ]


class TestLines:
    FIGURE: ClassVar = {"title": "Batch", "form": "lines", "x": "batch"}

    def test_one_factor_with_the_rest_as_in_the_base(self):
        found = drawn(self.FIGURE, a_sweep(), {"batch": 4})
        assert points(found) == {("alexnet-owt", 4): 100, ("alexnet-owt", 16): 150, ("alexnet-owt", 64): 160}
        assert found["x"] == {"label": "batch size", "scale": "log"}
        assert found["y"] == {"label": "images per second", "unit": "images/s", "scale": "linear"}

    def test_samples_that_are_no_images_are_not_called_so(self):
        records = a_sweep()
        for record in records:
            record["workload"]["sample"] = "sample"
        found = drawn(self.FIGURE, records, {"batch": 4})
        assert found["y"] == {"label": "samples per second", "unit": "samples/s", "scale": "linear"}

    def test_what_ran_out_of_memory_is_a_gap(self):
        (gap,) = drawn(self.FIGURE, a_sweep(), {"batch": 4})["gaps"]
        assert gap["x"] == 256
        assert gap["why"].startswith("oom: ")

    def test_every_point_names_its_runs_and_doubts(self):
        records = rounds(1, 2, batch=4, doubts=["trend"]) + rounds(1, 2, batch=8)
        first, second = drawn(self.FIGURE, records)["series"][0]["points"]
        assert first["runs"] == [record["id"] for record in records[:2]]
        assert (first["doubts"], second["doubts"]) == (["trend"], [])
        assert first["y"]["n"] == 2

    def test_a_phase_that_is_asked_for(self):
        records = [*a_sweep(), *rounds(500, 501, 502, batch=16, phase="forward")]
        found = drawn({**self.FIGURE, "filters": {"phase": "forward"}}, records, {"batch": 4})
        assert points(found) == {("alexnet-owt", 4): 301, ("alexnet-owt", 16): 501}

    def test_a_single_value_is_no_curve(self):
        assert chart(self.FIGURE, [run(batch=4)]) == Absent(
            "only batch=4 was measured, so there is nothing to hold it against"
        )

    def test_commands_give_it_again(self):
        found = drawn(self.FIGURE, a_sweep(), {"batch": 4})
        assert found["commands"] == [f"deepstone run alexnet-owt batch={batch}" for batch in (4, 16, 64)]


class TestBars:
    def test_networks_carry_their_batch(self):
        records = [run(1, batch=4), run(3, batch=4, phase="forward"), run(2, model="resnet50", batch=2)]
        found = drawn({"form": "bars", "x": "model", "series": "phase"}, records)
        assert points(found) == {
            ("train", "alexnet-owt, batch 4"): 1,
            ("forward", "alexnet-owt, batch 4"): 3,
            ("train", "resnet50, batch 2"): 2,
        }

    def test_frameworks_by_name_and_by_version_where_there_are_several(self):
        records = [run(1), run(2, framework="jax", version="0.10.2"), run(3, environment="old", version="1.0.0")]
        found = drawn({"form": "bars", "x": "framework"}, records)
        assert set(points(found).values()) == {1, 2, 3}
        assert {x for _, x in points(found)} == {"torch 2.13.0", "torch 1.0.0", "jax"}

    def test_machines_are_never_merged(self):
        found = drawn({"form": "bars", "x": "model"}, [run(1), run(2, machine="there")])
        assert set(points(found).values()) == {1, 2}
        by_machine = drawn({"form": "bars", "x": "machine"}, [run(1), run(8, machine="there", gpu=True)])
        assert {x for _, x in points(by_machine)} == {"here CPU, 2 cores", "GPU of there"}

    def test_machines_of_one_name_get_a_number(self):
        records = [run(1), run(2, machine="there")]
        records[1]["environment"] = records[0]["environment"]
        found = drawn({"form": "bars", "x": "machine"}, records)
        assert len(points(found)) == 2

    def test_two_setups_on_one_spot_are_both_shown(self):
        """Both differ from JAX in the framework alone, since JAX came out as NHWC."""
        records = [
            run(1, framework="jax", effective={"layout": "nhwc"}),
            run(2),
            run(3, layout="nhwc"),
            run(4, framework="jax", batch=8, effective={"layout": "nhwc"}),
        ]
        found = drawn({"form": "bars", "x": "framework"}, records, {"framework": "jax"})
        assert sorted(points(found).values()) == [1, 2, 3]

    def test_a_wide_span_gets_a_logarithmic_axis(self):
        found = drawn({"form": "bars", "x": "layout"}, [run(1), run(1000, layout="nhwc")])
        assert found["y"]["scale"] == "log"


class TestRatios:
    def test_one_row_for_each_setting_against_the_base(self):
        records = [
            *rounds(100, 101, 99),
            *rounds(50, 50, 50, engine="native"),
            *rounds(200, 202, 198, precision="bf16-mixed", layout="nhwc"),
            *rounds(10, 10, 10, batch=4),
            *rounds(10, 10, 10, phase="forward"),
        ]
        found = drawn({"form": "ratios"}, records)
        assert points(found) == {
            ("alexnet-owt", "precision=bf16-mixed layout=nhwc"): pytest.approx(2, rel=0.01),
            ("alexnet-owt", "engine=native"): pytest.approx(0.5, rel=0.01),
        }
        assert found["y"]["unit"] == "ratio"

    def test_one_axis_alone(self):
        found = drawn({"form": "ratios", "x": "batch"}, a_sweep(), {"batch": 4})
        assert set(points(found)) == {("alexnet-owt", "batch=16"), ("alexnet-owt", "batch=64")}
        assert [gap["x"] for gap in found["gaps"]] == ["batch=256"]

    def test_what_is_unsupported_is_a_gap(self):
        records = [run(1), run(2, layout="nhwc"), run(outcome="unsupported", precision="fp16-mixed")]
        (gap,) = drawn({"form": "ratios"}, records)["gaps"]
        assert gap["x"] == "precision=fp16-mixed"
        assert "unsupported" in gap["why"]


class TestWithoutAStudy:
    def test_real_records_of_a_gpu(self):
        lines = [line for name in ("runs", "jax") for line in (H200 / f"{name}.jsonl").read_text().splitlines()]
        records = [json.loads(line) for line in lines]
        found = {data["name"]: data for data in default_charts(records)}
        assert set(found) == {"speed", "settings", "frameworks", "batch-alexnet-kim"} - (
            set() if "batch-alexnet-kim" in found else {"batch-alexnet-kim"}
        )
        fastest = found["settings"]["series"][0]["points"][0]
        assert fastest["x"] == "precision=bf16-mixed layout=nhwc compile=default"
        assert fastest["y"]["median"] == pytest.approx(7.4, rel=0.01)

    def test_nothing_measured_gives_no_figure(self):
        assert default_charts([]) == []
        assert default_charts([run(outcome="oom")]) == []

    def test_a_figure_that_no_run_fits_is_left_out(self):
        figures = [{"form": "bars", "x": "model"}, {"form": "lines", "x": "batch", "filters": {"model": "vgg19"}}]
        assert [data["x"]["label"] for data in charts(figures, [run()])] == ["network"]
        assert chart(figures[1], [run()]) == Absent("no run fits this figure")

    def test_many_records_stay_affordable(self):
        records = [run(100 + batch, batch=batch, threads=threads) for batch in range(1, 200) for threads in (1, 2)]
        assert default_charts(records)


class TestFigureEntries:
    @pytest.mark.parametrize(
        ("entry", "complaint"),
        [
            ({"frm": "bars"}, "frm is not a key of a figure; did you mean form?"),
            ({"form": "pie"}, "form = pie"),
            ({"x": "bacth"}, "x = bacth: no such axis; did you mean batch?"),
            ({"series": ["layuot"]}, "series = layuot: no such axis; did you mean layout?"),
            ({"filters": {"modle": "x"}}, "filters = modle: no such axis; did you mean model?"),
            ({"filters": "train"}, "filters: must be a table"),
            ({"y": "images"}, "y = images: did you mean images_per_s?"),
            ({"scale": "lag"}, "scale = lag"),
            ({"title": 3}, "title: must be text"),
            ({"series": [1.5]}, "series: must be names or whole numbers"),
        ],
    )
    def test_a_mistake_is_told_with_the_nearest_name(self, entry: dict[str, Any], complaint: str):
        with pytest.raises(UsageError) as told:
            read_figure(entry)
        assert complaint in str(told.value)
        assert "\n" not in str(told.value)

    @given(
        st.dictionaries(
            st.sampled_from(KEYS) | st.text(max_size=5),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                max_leaves=5,
            ),
            max_size=4,
        )
    )
    def test_anything_else_is_refused_in_one_line_or_read(self, entry: dict[str, Any]):
        complaint = ""
        try:
            read_figure(entry)
        except UsageError as error:
            complaint = str(error)
        assert len(complaint.splitlines()) <= 1

    @pytest.mark.parametrize("measure", MEASURES)
    def test_every_measure_can_be_drawn(self, measure: str):
        assert measure_named(measure).name == measure
        found = chart({"form": "bars", "x": "model", "y": measure}, rounds(100, 101, 102))
        if not isinstance(found, Absent):
            json.dumps(found, allow_nan=False)

    def test_a_step_is_the_batch_over_the_speed(self):
        found = drawn({"form": "bars", "x": "model", "y": "step_s"}, [run(64, batch=32)])
        assert list(points(found).values()) == [0.5]
