"""Results of every shape that is allowed, with any names: for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from deepstone.results.doubt import DOUBT_CODES

AWKWARD = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>alert(1)</script>",
    "$\\frac{1}{$",
    "{{ 7 * 7 }}",
    "%{x}",
    "\x1b[31m\x07\u202e",
    "<a href='javascript:alert(1)'>click</a>",
    "&lt;b&gt;",
    "層" * 200,
    "",
)

# JSON from files holds neither NUL nor lone surrogates: the codec refuses them.
written = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
names = st.sampled_from(AWKWARD) | st.text(written, max_size=30)
keys = st.sampled_from(["torch", "<b>tensorflow", "$jax$", "0"])
times = st.sampled_from([0.0, 1e-12, 1e9]) | st.floats(1e-9, 10)
absents = st.builds(lambda reason: {"absent": reason}, names.filter(bool))


@st.composite
def quantities(draw: st.DrawFn) -> dict[str, Any]:
    low, middle, high = sorted(draw(st.tuples(times, times, times)))
    return {"median": middle, "low": low, "high": high, "n": draw(st.integers(1, 1000))}


maybe = quantities() | absents
counts = st.sampled_from([0, 1, 2**62]) | st.integers(0, 10**12)
both = st.fixed_dictionaries({"forward": counts, "backward": counts})
isolated = absents | st.fixed_dictionaries(
    {**{f"{part}_s": maybe for part in ("forward", "backward", "data", "weight")}, "by_difference": st.booleans()}
)
doubts = st.lists(
    st.fixed_dictionaries({"code": st.sampled_from(list(DOUBT_CODES)), "detail": names.filter(bool)}), max_size=2
)
layers = st.fixed_dictionaries(
    {
        "name": names,
        "op": st.sampled_from(["conv", "relu"]),
        "flops": both,
        "bytes": both,
        "forward_s": maybe,
        "backward_s": maybe,
        "share": st.floats(0, 1),
        "isolated": isolated,
        "shape": absents | st.lists(st.integers(1, 9), max_size=3),
        "parameters": counts,
        "flops_per_s": absents,
        "bound": absents,
        "primitives": st.lists(names, max_size=1),
    }
)
rates = st.dictionaries(st.sampled_from(["fp32", "bf16", "copy"]), maybe, max_size=2)
known_rates = st.dictionaries(st.sampled_from(["fp32", "bf16"]), quantities(), max_size=2)
peaks = absents | st.fixed_dictionaries(
    {"device": names, "flops_per_s": known_rates, "bytes_per_s": rates, "measured_with": names, "measured_at": names}
)
kinds = ("parameters", "gradients", "optimizer", "activations", "workspace")
sizes = counts | absents
kind_sizes = {f"{kind}_bytes": counts for kind in kinds[:-1]} | {"workspace_bytes": sizes}
layer_memories = st.fixed_dictionaries({"name": names, "op": names, **kind_sizes, "kept_bytes": sizes})
memories = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "kind": st.just("memory"),
        "model": names,
        "batch": st.integers(1, 1024),
        "phase": st.just("train"),
        "predicted": absents | st.fixed_dictionaries({**kind_sizes, "total_bytes": counts}),
        "measured_peak_bytes": sizes,
        "layers": st.lists(layer_memories, max_size=3),
    }
)
single_results = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "kind": st.just("layers"),
        "model": names,
        "command": st.lists(names, min_size=1, max_size=3),
        "workload": st.fixed_dictionaries(
            {
                "model": names,
                "batch": st.integers(1, 1024),
                "phase": st.sampled_from(["forward", "train"]),
                "input": names,
                "source": st.just("zoo"),
                "file_sha256": st.just(""),
            }
        ),
        "setup": st.fixed_dictionaries(
            {
                "requested": st.just({}),
                "effective": st.dictionaries(
                    st.sampled_from(["precision", "layout", "threads"]),
                    st.fixed_dictionaries({"value": names, "source": st.sampled_from(["observed", "set"])}),
                    max_size=2,
                ),
            }
        ),
        "method": names,
        "rule": names,
        "step_s": quantities(),
        **{
            f"{part}_s": maybe
            for part in ("traced_step", "sum", "update", "data", "gaps", "isolated_sum", "fusion_saved")
        },
        "explained": maybe,
        "other": st.lists(st.fixed_dictionaries({"name": names, "s": quantities()}), max_size=2),
        "layers": st.lists(layers, max_size=3),
        "groups": st.lists(
            st.fixed_dictionaries(
                {
                    "name": names,
                    "layers": st.integers(1, 9),
                    "forward_s": times,
                    "backward_s": times,
                    "share": st.floats(0, 1),
                }
            ),
            max_size=2,
        ),
        "peaks": peaks,
        "kernels": absents,
        "doubts": doubts,
    }
)
failed = st.just({"outcome": "oom", "failure": {"reason": "no memory left", "stderr_tail": ""}})
layers_results = single_results | st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "kind": st.just("layers"),
        "model": names,
        "frameworks": st.dictionaries(keys, single_results | failed, min_size=1, max_size=3),
    }
)
tries = st.fixed_dictionaries(
    {
        "algorithm": names,
        "pass": st.sampled_from(["forward", "data", "weight"]),
        "time_s": maybe,
        "workspace_bytes": sizes,
        "flops": sizes,
        "relative_error": st.floats(0, 1) | absents,
        "kind": st.sampled_from(["timed", "reference"]),
        "picked": st.booleans(),
        "transform_flops": sizes,
        "formula": names,
    }
)
some_sizes = st.lists(st.integers(0, 9), max_size=4)
conv_shapes = st.fixed_dictionaries(
    {
        **dict.fromkeys(("input", "output", "kernel", "stride", "pad", "dilation"), some_sizes),
        "groups": st.integers(1, 4),
    }
)
conv_results = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "kind": st.just("conv"),
        "model": names,
        "command": st.lists(names, min_size=1, max_size=3),
        "device": names,
        "batch": st.integers(1, 1024),
        "phase": names,
        "precision": names | absents,
        "layout": names | absents,
        "failures": st.lists(names, max_size=1),
        "layers": st.lists(
            st.fixed_dictionaries(
                {
                    "name": names,
                    "equal": st.lists(names, max_size=2),
                    "shape": conv_shapes,
                    "results": st.lists(tries, max_size=4),
                    "best": st.just({}),
                    "in_step": st.just({}),
                }
            ),
            max_size=3,
        ),
        "mix": absents,
        "doubts": doubts,
    }
)
chart_points = st.fixed_dictionaries(
    {"x": names | st.integers(0, 4096), "y": maybe | times},
    optional={
        "runs": st.lists(names, max_size=3),
        "doubts": st.lists(names, max_size=2),
        "label": names,
        "apart": st.booleans(),
    },
)
chart_series = st.fixed_dictionaries(
    {
        "name": names,
        "published": st.booleans(),
        "points": st.lists(chart_points, max_size=4),
        "panel": st.sampled_from(["", "training", "<b>"]),
    }
)
charts = st.fixed_dictionaries(
    {
        "schema": st.just(1),
        "kind": st.just("chart"),
        "name": names,
        "title": names,
        "subtitle": names,
        "form": st.sampled_from(["bars", "lines", "ratios"]),
        "x": st.fixed_dictionaries(
            {
                "label": names,
                "scale": st.sampled_from(["category", "linear", "log"]),
                "unit": st.sampled_from(["", "year"]),
            }
        ),
        "y": st.fixed_dictionaries(
            {
                "label": names,
                "unit": st.sampled_from(["images/s", "s", "bytes", "ratio", "share", "flop/s"]),
                "scale": st.sampled_from(["linear", "log"]),
            }
        ),
        "series": st.lists(chart_series, max_size=3),
        "gaps": st.lists(
            st.fixed_dictionaries({"series": names, "x": names | st.integers(0, 4096), "why": names}), max_size=2
        ),
        "caption": st.lists(names, max_size=2),
        "commands": st.lists(names, max_size=2),
    }
)
results = layers_results | conv_results | memories
