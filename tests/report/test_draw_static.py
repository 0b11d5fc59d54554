"""SVG and PNG: well-formed, complete, the same every time, and unmoved by names or settings of others."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from made_up import conv_result, figure_of, layers_result, memory_result, several
from PIL import Image
from shapes import AWKWARD

from deepstone.report.static import draw_static

EVERY_FIGURE = [pytest.param(layers_result, name, id=f"layers {name}") for name in ("bars", "groups", "roofline")]
EVERY_FIGURE += [pytest.param(several, name, id=f"frameworks {name}") for name in ("bars", "roofline")]
EVERY_FIGURE += [pytest.param(conv_result, "algorithms", id="conv"), pytest.param(memory_result, "memory", id="memory")]


def words_in(svg: bytes) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(("make", "name"), EVERY_FIGURE)
def test_svg_holds_its_words_as_text(make: Any, name: str) -> None:
    figure = figure_of(make(), name)
    words = words_in(draw_static(figure, "svg"))
    assert f"{figure.model}: {figure.title}" in " ".join(words)
    for panel in figure.panels:
        assert panel.title in words
    for line in (*figure.caption, *figure.doubts, *figure.commands):
        assert line.split()[0] in " ".join(words)


def test_every_layer_and_unit_is_named() -> None:
    words = words_in(draw_static(figure_of(layers_result(), "bars"), "svg"))
    assert {"conv1", "fc8", "update", "gaps", "time per step in s", "forward", "backward"} <= set(words)
    assert any(word.endswith(" %") for word in words)


def test_the_roofline_names_its_ceilings_and_layers() -> None:
    words = words_in(draw_static(figure_of(layers_result(), "roofline"), "svg"))
    assert {"fp32: 90.0 GFLOP/s", "bf16: 279 GFLOP/s", "memory, copy: 12.0 GB/s", "conv2", "fc6"} <= set(words)


def test_png_is_a_picture_of_the_right_size() -> None:
    figure = figure_of(layers_result("cifarnet"), "bars")
    picture = Image.open(io.BytesIO(draw_static(figure, "png")))
    svg = ElementTree.fromstring(draw_static(figure, "svg"))
    points = [float(svg.attrib[side].removesuffix("pt")) for side in ("width", "height")]
    assert picture.size == pytest.approx([2 * side for side in points], abs=2)  # 144 dots and 72 points an inch
    assert picture.width == pytest.approx(10.6 * 144, abs=2)
    assert len(picture.convert("RGB").getcolors(2**20) or []) > 20


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_the_same_figure_is_the_same_file(kind: str) -> None:
    figure = figure_of(conv_result(), None)
    assert draw_static(figure, kind) == draw_static(figure, kind)


def test_no_date_and_nothing_from_elsewhere() -> None:
    svg = draw_static(figure_of(layers_result("cifarnet"), None), "svg").decode()
    assert "<dc:date>" not in svg
    assert 'href="http' not in svg


def test_settings_of_the_user_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    figure = figure_of(layers_result("cifarnet"), "groups")
    before = draw_static(figure, "svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        assert draw_static(figure, "svg") == before
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.parametrize("hostile", AWKWARD)
def test_names_are_only_names(hostile: str) -> None:
    result = layers_result("cifarnet")
    result["model"] = result["layers"][0]["name"] = result["groups"][0]["name"] = hostile
    result["doubts"][0]["detail"] = hostile or "empty"
    svg = draw_static(figure_of(result, "bars"), "svg")
    root = ElementTree.fromstring(svg)
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert not list(root.iter("{http://www.w3.org/2000/svg}image"))
    if hostile.isascii() and hostile.isprintable() and 0 < len(hostile) < 40:
        assert hostile in words_in(svg)
