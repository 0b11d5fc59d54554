"""Charts as an analysis gives them, with made-up numbers: one of each form, with everything that a chart can hold."""

from __future__ import annotations

from typing import Any

from report.made_up import quantity

RUN = "0123456789abcdef0123-1"


def chart(form: str = "bars", /, **changes: Any) -> dict[str, Any]:
    made = {"bars": bars_chart, "lines": lines_chart, "ratios": ratios_chart}[form]()
    return {**made, **changes}


def bars_chart() -> dict[str, Any]:
    return {
        **_head("bars"),
        "x": {"label": "framework", "scale": "category"},
        "y": {"label": "speed", "unit": "images/s", "scale": "linear"},
        "series": [
            {"name": "NVIDIA H200", "points": [point("torch", 900.0, runs=[RUN]), point("jax", 1200.0, "throttling")]},
            {"name": "2 cores", "points": [point("torch", 30.0), {"x": "tensorflow", "y": 25.0}]},
            {"name": "K40", "published": True, "points": [{"x": "torch", "y": 20.0}]},
        ],
        "gaps": [{"series": "2 cores", "x": "jax", "why": "oom: 12 GiB wanted, 8 GiB there"}],
    }


def lines_chart(points: int = 6) -> dict[str, Any]:
    return {
        **_head("lines"),
        "x": {"label": "batch size", "scale": "log"},
        "y": {"label": "speed", "unit": "images/s", "scale": "linear"},
        "series": [
            {"name": "nchw", "published": False, "points": [point(2**at, 100.0 + 80 * at) for at in range(points)]},
            {"name": "nchw", "published": True, "points": [{"x": 2**at, "y": 50.0 + 60 * at} for at in range(4)]},
        ],
        "gaps": [{"series": "nchw", "x": 2**points, "why": "oom: no memory left"}],
    }


def years_chart() -> dict[str, Any]:
    """Several versions of one framework, several frameworks of one year, a variant, and two panels."""
    releases = [
        ("torch", "torch 1.1.0", 2019, 30.0),
        ("torch", "torch 2.13.0", 2026, 44.0),
        ("tensorflow", "tensorflow 1.2.1", 2017, 7.0),
        ("tensorflow", "tensorflow 1.12.0", 2018, 12.0),
        ("tensorflow", "tensorflow 1.12.0-intel", 2018, 47.0),
        ("tensorflow", "tensorflow 2.21.0", 2026, 43.0),
        ("jax", "jax 0.10.2", 2026, 43.5),
        ("caffe", "caffe 1.0.0", 2017, 7.1),
    ]
    series = [
        {
            "name": name,
            "panel": panel,
            "points": [
                {**point(year, times * speed), "label": label, **({"apart": True} if "-" in label else {})}
                for framework, label, year, speed in releases
                if framework == name
            ],
        }
        for panel, times in (("training", 1.0), ("forward", 3.0))
        for name in dict.fromkeys(framework for framework, *_ in releases)
    ]
    return {
        **_head("lines"),
        "x": {"label": "year of release", "scale": "linear", "unit": "year"},
        "y": {"label": "images per second", "unit": "images/s", "scale": "linear"},
        "series": series,
        "gaps": [{"series": "jax", "x": 2026, "why": "jax 0.9: crashed: out of luck", "panel": "forward"}],
    }


def ratios_chart() -> dict[str, Any]:
    points = [point("layout=nhwc", 1.4), point("precision=bf16-mixed", 2.1), point("threads=1", 0.55)]
    return {
        **_head("ratios"),
        "x": {"label": "setting", "scale": "category"},
        "y": {"label": "speed against the base", "unit": "ratio", "scale": "log"},
        "series": [{"name": "alexnet-owt", "published": False, "points": points}],
        "gaps": [],
    }


def point(x: str | int, y: float, *doubts: str, runs: list[str] | None = None) -> dict[str, Any]:
    return {"x": x, "y": {**quantity(y), "n": 3}, "runs": runs or [], "doubts": list(doubts)}


def _head(form: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "chart",
        "name": f"made-up-{form}",
        "title": f"A chart of {form}",
        "subtitle": "alexnet-kim, batch 128",
        "form": form,
        "caption": ["Medians of 3 rounds with 95 % intervals."],
        "commands": ["deepstone run alexnet-kim framework=torch,jax"],
    }
