"""Figures and the page of what `deepstone tune` found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, visit
from factory import sha
from msgspec.structs import replace
from tune_example import BEST, DEFAULT, OTHER, near, tune_finding, tuned

from deepstone.absent import Absent
from deepstone.report.figure import Figure, NothingToDrawError
from deepstone.report.figures import CATALOG, make_figure
from deepstone.report.files import draw
from deepstone.report.html.lanes import lanes_plot
from deepstone.report.panels import BarChart, LaneChart, LineChart, ParallelPlot, ScatterPlot
from deepstone.report.search import search_of as search_row
from deepstone.report.static import draw_static
from deepstone.report.table import Unit, Value
from deepstone.report.tune_page import tune_page
from deepstone.results.findings import Finding
from deepstone.results.identity import run_id
from deepstone.results.quantity import Quantity
from deepstone.results.tune import AxisRatio, Bound, LostTime, SameSetup, SameTraining, TuneLimit, TuneObjective

NAMES = tuple(CATALOG["tune"])


def finding(**changed: Any) -> Finding:
    return replace(tune_finding(), content=replace(tuned(), **changed))


def metered(*efficiencies: tuple[float, float]) -> Finding:
    """The finals with these samples per second and per joule, each known to one per cent."""
    finals = [
        replace(final, samples_per_s=near(speed), samples_per_j=near(energy))
        for final, (speed, energy) in zip(tuned().finals, efficiencies, strict=True)
    ]
    return finding(finals=finals)


def figure(name: str, result: Finding | None = None) -> Figure:
    return make_figure(result or tune_finding(), name)


@pytest.mark.parametrize("name", NAMES)
def test_both_drawers_draw_it(name: str) -> None:
    made = figure(name, metered((100.0, 1.0), (700.0, 2.0), (720.0, 1.5)))
    assert draw_static(made, "svg").startswith(b"<?xml")
    assert draw_static(made, "png").startswith(b"\x89PNG")


def lanes_of(made: Figure) -> LaneChart:
    return next(panel for panel in made.panels if isinstance(panel, LaneChart))


def test_the_parts_lead_from_the_default_to_the_best() -> None:
    """Each begins where the one before ends, and all of them multiply to the gain."""
    lanes = lanes_of(figure("waterfall")).lanes
    spans = [lane.tracks[0][0] for lane in lanes]
    assert spans[0].start == 1.0
    assert spans[1].start == pytest.approx(spans[0].end)
    found = tuned()
    assert isinstance(found.together, Quantity)
    parts = [each.contribution.median for each in found.why]
    assert spans[1].end == pytest.approx(math.prod(parts))
    assert spans[2].start == pytest.approx(math.prod(parts) * found.together.median)


def test_whiskers_reach_from_added_to_removed() -> None:
    spans = [lane.tracks[0][0] for lane in lanes_of(figure("waterfall")).lanes]
    assert spans[0].whisker == pytest.approx((2.7, 4.2))
    assert spans[1].whisker == pytest.approx((3.4 * 1.7, 3.4 * 2.6))


def test_an_estimate_is_hollow() -> None:
    effects = next(panel for panel in figure("waterfall").panels if isinstance(panel, BarChart))
    series = [effects.series[bar[0].series] for row in effects.rows for bar in row.bars]
    assert [each.published for each in series] == [False, False, False, True]


def test_without_a_gain_the_finals_are_drawn() -> None:
    made = figure("waterfall", finding(answer="nothing better", why=[], together=Absent("nothing is better")))
    assert len(made.panels) == 1
    with pytest.raises(NothingToDrawError, match="--budget"):
        figure("waterfall", finding(finals=[], why=[]))


def search_of(result: Finding | None = None) -> LineChart:
    panel = figure("search", result).panels[0]
    assert isinstance(panel, LineChart)
    return panel


def test_every_look_is_a_point_or_a_cross() -> None:
    curves = {curve.series.name: curve for curve in search_of().curves}
    looks = tuned().looks
    points = sum(len(curve.points) for name, curve in curves.items() if name != "best so far")
    assert points + sum(len(curve.gaps) for curve in curves.values()) == len(looks)
    assert len(curves["search"].gaps) == 1
    assert "oom" in curves["search"].gaps[0][1]
    assert set(curves) == {"best so far", "start", "search", "default again", "repeat", "finals", "explanation"}


def test_the_best_so_far_never_falls_and_leaves_out_the_finals() -> None:
    points = search_of().curves[0].points
    assert [point.y.middle for point in points] == sorted(point.y.middle for point in points)
    assert points[-1].y.middle == 735.0


def test_a_resumed_search_goes_on_in_time() -> None:
    """`began_s` counts the seconds of all calls together, so nothing is added to it, whatever the order of looks."""
    looks = tuned().looks
    shifted = [*looks[:4], *(replace(look, began_s=look.began_s + 100.0) for look in looks[4:6]), *looks[6:]]
    ends = {point.x for curve in search_of(finding(looks=shifted)).curves[1:] for point in curve.points}
    assert ends == {look.began_s + look.took_s for look in shifted if not isinstance(look.samples_per_s, Absent)}


@pytest.mark.parametrize(("objective", "best"), [("memory", [4.0, 3.0, 3.0, 3.0]), ("energy", [1.0, 1.0, 2.0, 2.0])])
def test_the_best_so_far_is_of_what_is_sought(objective: Any, best: list[float]) -> None:
    led = [look for look in tuned().looks if not isinstance(look.samples_per_s, Absent)][:4]
    peaks, efficiencies = (4, 3, 5, 3), (1.0, 0.5, 2.0, 2.0)
    looks = [
        replace(look, peak_bytes=peak, samples_per_j=efficiency)
        for look, peak, efficiency in zip(led, peaks, efficiencies, strict=True)
    ]
    result = finding(looks=looks, objective=TuneObjective(name=objective))
    panel, ends = search_of(result), [look.began_s + look.took_s for look in looks]
    last = {point.x: point.y.middle for point in panel.curves[0].points}  # of a step, where it ends
    assert [last[end] for end in ends] == best
    assert panel.y.unit is (Unit.BYTES if objective == "memory" else Unit.SAMPLES_PER_J)
    assert "speed" not in panel.y.label
    assert figure("search", result).table.headings[-1] == panel.y.label


def test_the_best_so_far_keeps_the_limits() -> None:
    """The fastest look takes more than is allowed."""
    looks = [
        replace(look, peak_bytes=2**31) if look.setup == dict(BEST) and look.kind == "search" else look
        for look in tuned().looks
    ]
    limited = finding(looks=looks, limits=[TuneLimit(name="memory", most=2.0**30)])
    assert max(point.y.middle for point in search_of(limited).curves[0].points) == 715.0
    assert max(point.y.middle for point in search_of().curves[0].points) == 735.0


def coordinates_of(result: Finding | None = None) -> ParallelPlot:
    panel = figure("coordinates", result).panels[0]
    assert isinstance(panel, ParallelPlot)
    return panel


def test_a_setup_is_a_line_across_all_axes() -> None:
    plot = coordinates_of()
    assert [axis.name for axis in plot.axes] == ["framework", "precision", "layout", "compile", "images/s"]
    strands = dict(zip([series.name for series in plot.series], plot.strands, strict=True))
    assert len(strands["best"]) == len(strands["default"]) == 1
    assert len(strands["other looks"]) + 2 + len(strands["failed"]) == len({str(each.setup) for each in tuned().looks})
    assert all(len(strand.places) == len(plot.axes) for own in plot.strands for strand in own)
    assert strands["failed"] == () or strands["failed"][0].places[-1] is None
    ticks = dict(plot.axes[0].ticks)
    best = strands["best"][0]
    assert best.places[0] is not None
    assert ticks[best.places[0]] == "jax"


def test_looks_of_one_setup_have_no_axes() -> None:
    with pytest.raises(NothingToDrawError, match="one setup"):
        coordinates_of(finding(looks=[each for each in tuned().looks if each.setup == dict(DEFAULT)]))


def groups_of(result: Finding) -> dict[str, int]:
    panel = figure("pareto", result).panels[0]
    assert isinstance(panel, ScatterPlot)
    return {group.series.name: len(group.points) for group in panel.groups}


def test_dominated_only_if_both_intervals_say_so() -> None:
    assert groups_of(metered((100.0, 1.0), (700.0, 2.0), (720.0, 1.5))) == {"dominated": 1, "not dominated": 2}
    barely = metered((100.0, 1.0), (700.0, 2.0), (720.0, 1.995))  # more speed, and as much energy within the interval
    assert groups_of(barely) == {"dominated": 1, "not dominated": 2}
    assert groups_of(metered((718.0, 1.0), (700.0, 2.0), (720.0, 1.99))) == {"not dominated": 3}


def test_without_a_meter_there_is_no_pareto_figure() -> None:
    with pytest.raises(NothingToDrawError, match="no energy meter"):
        figure("pareto")


def test_the_page_opens_with_the_answer() -> None:
    page = tune_page(tune_finding())
    assert page.answer.startswith("Use framework=jax precision=bf16-mixed: 722 images/s")
    assert "7.08x" in page.answer
    assert "Given up: products in bf16" in page.answer
    assert page.ratio == "7.08"
    assert [row.verdict for row in page.same] == ["same"]
    assert page.best_file == ("[setup]", 'framework = "jax"', 'precision = "bf16-mixed"')
    assert "other training" in page.batch_free
    assert page.not_decided == ("isa",)


def test_the_page_compares_the_model_as_it_was_given() -> None:
    found = tune_finding()
    given = ["deepstone", "tune", "my nets/lenet.prototxt", "--input", "1x28x28", "--budget", "5m"]
    assert tune_page(replace(found, command=given)).compare == (
        "deepstone compare 'my nets/lenet.prototxt' --input 1x28x28 -- @best.toml"
    )


@pytest.mark.parametrize(
    ("answer", "first", "said"),
    [
        ("nothing better", "Stay with the default, framework=torch", "Nothing better"),
        ("not separable", "Nothing is decided", "do not show it"),
    ],
)
def test_without_a_winner_the_page_says_what_to_do(answer: Any, first: str, said: str) -> None:
    nothing = Absent("nothing is shown to be better than the default")
    page = tune_page(finding(answer=answer, ratio=nothing, same=nothing, why=[], together=nothing))
    assert page.answer.startswith(first)
    assert said in page.answer
    assert page.ratio == ""


def test_without_a_default_nobody_is_told_to_stay_with_it() -> None:
    nothing = Absent("nothing is shown to be better than the default")
    failed = replace(tuned().default, samples_per_s=Absent("oom: too little memory"))
    result = finding(answer="not separable", ratio=nothing, same=nothing, why=[], default=failed, best=failed)
    assert tune_page(result).answer.startswith("The default could not be measured")
    assert "oom" in tune_page(result).answer
    assert search_row(result).best == "none"


def test_of_one_setup_there_was_nothing_to_search() -> None:
    nothing = Absent("nothing is shown to be better than the default")
    one = replace(tuned().space, setups=1, axes=[])
    result = finding(answer="nothing better", ratio=nothing, same=nothing, why=[], best=tuned().default, space=one)
    assert tune_page(result).answer.startswith("There was nothing to search")
    assert "nothing to search" in search_row(result).gain


def test_what_is_not_proven_is_not_called_the_same() -> None:
    late = SameSetup(
        setup=dict(BEST),
        ok=False,
        gradient=Absent("no time"),
        loss=Absent("no time"),
        update=Absent("no time"),
        why_not="the time for this check ran out",
    )
    page = tune_page(finding(same=SameTraining(level="close", ok=False, setups=[late], given_up="")))
    assert [row.verdict for row in page.same] == ["not proven"]
    assert "not proven: the time" in page.same_lead


def test_bounds_and_doubts_are_told() -> None:
    lost = [
        LostTime(what="batch norms", lost_s=7e-3, taken_s=13.7e-3, layer="norm1", layer_lost_s=0.9e-3),
        LostTime(what="between layers", lost_s=4e-4),
    ]
    layers = run_id(sha("layers"), 1)
    bound = Bound(roofline_share=0.71, power_limit_share=Absent("no meter"), most_lost=lost, layers=layers)
    page = tune_page(finding(bound=bound, doubts=["other_load (2 of 6 runs): other processes ran"]))
    told = [words for _, words in page.bound]
    assert told[0].startswith("71 % of ")
    assert told[1].startswith("batch norms 7.00 ms of 13.7 ms (norm1 900 µs), between layers 400 µs; ")
    assert layers in told[1]
    held = tune_page(finding(bound=replace(bound, power_limit_share=0.93))).bound
    assert ("held back by power", "93 % of the time, since the GPU was at its power limit") in held
    assert "the most images per second" in dict(page.facts).values()
    assert not {"objective", "space"} & {label for label, _ in page.facts}
    assert page.doubts == ("other_load (2 of 6 runs): other processes ran",)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tune")
    nothing = Absent("nothing is shown to be better than the default")
    awkward = {"framework": "torch", "layout": "<b>nhwc</b>"}
    looks = [replace(look, setup=awkward) if look.setup == dict(OTHER) else look for look in tuned().looks]
    results = {
        "better": metered((100.0, 1.0), (700.0, 2.0), (720.0, 1.5)),
        "nothing": finding(answer="nothing better", ratio=nothing, same=nothing, why=[], together=nothing),
        "awkward": finding(looks=looks),
    }
    for name, result in results.items():
        assert draw(result, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in results}


@pytest.mark.parametrize("name", ["better", "nothing", "awkward"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_draws_everything_and_asks_for_nothing(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    seen = visit(browser, pages[name], width=width, scheme="dark" if width == 390 else "light")
    plots = seen.page.query_selector_all(".plot")
    assert len(plots) == {"better": 6, "nothing": 3, "awkward": 5}[name]
    assert all(plot.query_selector_all(".box, .dot") for plot in plots)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width  # nothing sticks out
    assert seen.page.query_selector("main b") is None  # a name is text
    proof = seen.page.query_selector(".stacked")
    if proof is not None:  # all of it is there without moving it
        assert proof.evaluate("table => table.scrollWidth <= table.clientWidth")
    assert "`" not in seen.page.inner_text("main")
    seen.assert_quiet()
    seen.page.close()


def test_one_figure_by_its_name_is_a_page_of_figures(tmp_path: Path) -> None:
    assert draw(tune_finding(), tmp_path / "search.html", "search") == ("search",)
    assert draw(tune_finding(), tmp_path / "all.svg") == ("waterfall",)


def test_a_narrow_page_wraps_the_labels_of_the_waterfall() -> None:
    """`framework=jax, 1.51x` and longer ones keep both ends and their middle."""
    parts = figure("waterfall").panels[0]
    assert isinstance(parts, LaneChart)
    long = replace(parts.lanes[0], label="framework=tensorflow, 1.31x")
    plot = lanes_plot(replace(parts, lanes=(long, *parts.lanes[1:])))
    assert plot.drawing.narrow_labels[0] == ("framework=tensorflow,", "1.31x")
    assert not any("…" in line for label in plot.drawing.narrow_labels for line in label)


def halved() -> Finding:
    """A search for memory: the default takes 4 GiB, the best 2 GiB at four fifths of the speed."""
    peaks = (2**32, 2**31, 2**31 + 2**30)
    finals = [
        replace(final, peak_bytes=peak, ratio=near(2**32 / peak, 0.001))
        for final, peak in zip(tuned().finals, peaks, strict=True)
    ]
    half = near(2**0.5, 0.001)
    effect = AxisRatio(ratio=half, estimated=False)
    parts = [replace(each, contribution=half, added=effect, removed=effect) for each in tuned().why]
    objective = TuneObjective(name="memory")
    return finding(objective=objective, finals=finals, ratio=near(2.0, 0.001), why=parts, together=near(1.0, 0.001))


def test_less_memory_is_told_as_memory_everywhere() -> None:
    """In the large figure, the sentences, the table of a report, and every axis; nowhere as 2.00x."""
    result = halved()
    page, row = tune_page(result), search_row(result)
    assert page.ratio == "0.50"
    assert "memory" in page.ratio_of
    assert "0.500x" in page.answer
    assert row.gain == "0.500x (0.500 – 0.501) the memory of the default"
    assert all("0.707x" in line and "memory" in line and "1.41" not in line for line in page.why[:2])
    assert page.how.endswith("differ by 2.0 % in memory")
    made = figure("waterfall", result)
    spans = [lane.tracks[0][0] for lane in lanes_of(made).lanes]
    assert (spans[0].start, spans[0].end) == pytest.approx((2**-0.5, 1.0), rel=1e-3)
    assert (spans[1].start, spans[1].end) == pytest.approx((0.5, 2**-0.5), rel=1e-3)
    assert [lanes_of(made).series[span.series].name for span in spans[:2]] == ["less memory"] * 2
    _, effects, finals = made.panels
    assert isinstance(effects, BarChart)
    assert isinstance(finals, BarChart)
    alone = [bar[0].value.middle for row in effects.rows for bar in row.bars]
    assert alone == pytest.approx([2**-0.5] * 4)
    assert [bar[0].value.middle for row in finals.rows for bar in row.bars] == [2**32, 2**31, 2**31 + 2**30]
    axes = [lanes_of(made).axis, effects.axis, finals.axis]
    assert [("memory" in axis.label, "speed" in axis.label) for axis in axes] == [(True, False)] * 3
    assert finals.axis.unit is Unit.BYTES
    over = made.table.headings.index("over the default of the memory")
    ratios = [each[over] for each in made.table.rows if isinstance(each[over], Value)]
    assert [ratio.middle for ratio in ratios] == pytest.approx([1.0, 0.5, 0.75])


def test_a_gain_of_energy_has_its_name() -> None:
    result = finding(objective=TuneObjective(name="energy"))
    assert tune_page(result).ratio == "7.08"
    assert "joule" in tune_page(result).ratio_of
    assert "joule" in search_row(result).gain
    assert "joule" in lanes_of(figure("waterfall", result)).axis.label
    assert tune_page(tune_finding()).ratio_of == ""
    assert lanes_of(figure("waterfall")).axis.label == "speed over the default"
