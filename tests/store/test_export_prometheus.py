"""What we write for Prometheus is read back by Prometheus' own client."""

from __future__ import annotations

from typing import Any

from depth import examples
from factory import JsonRecord, make_record, typed
from hostile import records
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from deepstone.store.export.prometheus import export_prometheus


def scraped(*runs: JsonRecord, redact: bool = False) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Every gauge by its labels, as a reader that knows nothing of us sees them; a series twice is an error."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families("".join(export_prometheus(map(typed, runs), redact=redact))):
        assert family.type == "gauge"
        assert family.documentation
        assert family.name not in found
        series = found.setdefault(family.name, {})
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in series
            series[key] = sample.value
    return found


def only(series: dict[Any, float]) -> float:
    (value,) = series.values()
    return value


def test_the_numbers_of_a_run():
    found = scraped(make_record(batch=8, step_s=0.5))
    assert only(found["deepstone_samples_per_second"]) == 16
    assert only(found["deepstone_step_seconds"]) == 0.5
    assert only(found["deepstone_step_seconds_low"]) == 0.495
    assert only(found["deepstone_ok"]) == 1
    assert only(found["deepstone_doubts"]) == 1
    ((labels, value),) = found["deepstone_memory_bytes"].items()
    assert (dict(labels)["kind"], value) == ("host_peak", 123_456_789)
    assert only(found["deepstone_started_timestamp_seconds"]) == 1794714012.123456
    (labels,) = found["deepstone_samples_per_second"]
    assert {"model": "cifarnet", "batch": "8", "phase": "train", "framework": "torch"}.items() <= dict(labels).items()


def test_a_failed_run_has_no_speed_and_is_not_ok():
    found = scraped(make_record(outcome="oom"))
    assert "deepstone_samples_per_second" not in found
    assert only(found["deepstone_ok"]) == 0
    (labels,) = found["deepstone_run_info"]
    assert dict(labels)["outcome"] == "oom"


def test_the_last_run_of_a_job_counts_and_jobs_stay_apart():
    old = make_record(step_s=0.5, attempt=2, started_at="2026-01-01T00:00:00.000000Z")
    new = make_record(step_s=0.25, attempt=1, started_at="2026-01-02T00:00:00.000000Z")
    other = make_record(step_s=0.125, repetition=2)
    for order in ([old, new, other], [other, new, old]):
        found = scraped(*order)
        assert sorted(found["deepstone_step_seconds"].values()) == [0.125, 0.25]


def test_nothing_is_said_of_nothing():
    assert list(export_prometheus([])) == []


def test_it_is_redacted_unless_told_not_to():
    record: Any = make_record()
    record["environment"]["framework"]["version"] = "1.0 built by alice"
    assert "alice" not in "".join(export_prometheus(map(typed, [record])))
    assert "alice" in "".join(export_prometheus(map(typed, [record]), redact=False))


@given(st.lists(records(), max_size=4, unique_by=lambda record: record["job"]))
@examples(60)
def test_whatever_a_model_is_called(runs: list[JsonRecord]):
    found = scraped(*runs)
    named = sorted(dict(labels)["model"] for labels in found.get("deepstone_ok", {}))
    assert named == sorted(record["workload"]["model"] for record in runs)
    layouts = sorted(dict(labels)["layout"] for labels in found.get("deepstone_ok", {}))
    assert layouts == sorted(str(record["setup"]["effective"]["layout"]["value"]) for record in runs)
