"""Traced steps of several processes: who waits for whom, what a record keeps of it, and what happens without them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_jobs import Script, fake_job

from deepstone.measure.effort import Effort
from deepstone.runner.replies import TracedStep
from deepstone.runner.run import run_job
from deepstone.runner.timeline import by_step, parts_of, timeline_of, trace_events
from deepstone.setups.axes import Value
from deepstone.store.store import Store
from deepstone.trace.events import chrome_trace

QUICK = Effort(budget_s=0.5, timeout_s=120.0)


@pytest.fixture
def run(store: Store):
    def run(**axes: Value) -> Any:
        return store.get(store.add(run_job(fake_job(**{"processes": 2, **axes}), QUICK)).id).to_json()

    return run


def traced(*spans: tuple[str, float, float]) -> TracedStep:
    end_s = max(end for _, _, end in spans)
    return TracedStep(begin_s=spans[0][1], end_s=end_s, spans=[(*span, 0) for span in spans])


FAST = traced(("forward", 0, 2), ("backward", 2, 5), ("reduce", 4, 11), ("unpack", 11, 12), ("update", 12, 13))
SLOW = traced(("forward", 0, 3), ("backward", 3, 9), ("reduce", 7, 11), ("unpack", 11, 12), ("update", 12, 13))
# Packed: a rank is ready when it has packed.
FAST_PACKED = traced(("forward", 0, 2), ("backward", 2, 5), ("pack", 5, 6), ("reduce", 6, 11), ("unpack", 11, 12))
SLOW_PACKED = traced(("forward", 0, 3), ("backward", 3, 8), ("pack", 8, 9), ("reduce", 9, 11), ("unpack", 11, 12))
# All buckets are reduced before backward ends.
HIDDEN = traced(("buffers", 0, 1), ("forward", 1, 3), ("backward", 3, 9), ("reduce", 4, 6), ("reduce", 5, 8))


class TestParts:
    def test_a_rank_waits_until_all_are_ready_and_the_rest_is_the_tail(self):
        fast, slow = parts_of([FAST, SLOW])
        assert (fast.waiting_s, fast.tail_s, fast.packing_s, fast.computing_s) == (4, 2, 1, 6)
        assert (slow.waiting_s, slow.tail_s, slow.packing_s, slow.computing_s) == (0, 2, 1, 10)
        assert (fast.in_flight_s, slow.in_flight_s) == (7, 4)

    def test_one_buffer_after_backward(self):
        fast, slow = parts_of([FAST_PACKED, SLOW_PACKED])
        assert (fast.waiting_s, fast.tail_s, fast.packing_s, fast.computing_s) == (3, 2, 2, 5)
        assert (slow.waiting_s, slow.tail_s, slow.packing_s, slow.computing_s) == (0, 2, 2, 8)

    def test_what_is_hidden_has_no_tail(self):
        (found,) = parts_of([HIDDEN])
        assert (found.waiting_s, found.tail_s, found.buffers_s, found.computing_s) == (0, 0, 1, 8)
        assert found.in_flight_s == 4

    @pytest.mark.parametrize("step", [(FAST, SLOW), (FAST_PACKED, SLOW_PACKED), (HIDDEN,)])
    def test_parts_add_up_to_the_step(self, step: tuple[TracedStep, ...]):
        for parts, rank in zip(parts_of(step), step, strict=True):
            found = parts.computing_s + parts.waiting_s + parts.tail_s + parts.packing_s + parts.buffers_s
            assert found == parts.total_s == rank.end_s - rank.begin_s

    def test_clocks_are_aligned_before_ranks_are_compared(self):
        late = TracedStep(
            begin_s=100,
            end_s=113,
            spans=[(kind, begin + 100, end + 100, size) for kind, begin, end, size in SLOW.spans],
        )
        (step,) = by_step([[FAST], [late]], [0.0, -100.0])
        assert parts_of(step) == parts_of([FAST, SLOW])

    def test_the_timeline_has_the_step_in_the_middle_and_its_waiting(self):
        longer, longest = (traced(("forward", 0, 2), ("backward", 2, by)) for by in (20, 30))
        found = timeline_of([[longest, longest], [FAST, SLOW], [longer, longer], [FAST, SLOW], [FAST, SLOW]])
        assert found.step_s == 13
        assert [[span.kind for span in lane.spans].count("waiting") for lane in found.lanes] == [1, 0]
        (waiting,) = [span for span in found.lanes[0].spans if span.kind == "waiting"]
        assert (waiting.begin_s, waiting.end_s) == (5, 9)


class TestTrace:
    def test_every_rank_has_its_track_by_the_clock_of_all(self):
        events = json.loads(chrome_trace(trace_events([[FAST, SLOW]], ["a", ""])))["traceEvents"]
        names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
        assert names == {"rank 0 on a": 1, "rank 1": 2}
        found = {(event["pid"], event["name"]): event for event in events if event["ph"] == "X"}
        assert {pid: (found[pid, "backward"]["ts"], found[pid, "backward"]["dur"]) for pid in (1, 2)} == {
            1: (2e6, 3e6),
            2: (3e6, 6e6),
        }
        assert (found[1, "waiting"]["ts"], found[1, "waiting"]["dur"]) == (5e6, 4e6)
        assert (2, "waiting") not in found
        assert found[1, "bucket 1"]["tid"] != found[1, "backward"]["tid"]

    def test_events_of_a_line_nest(self):
        """Else Perfetto drops them. Buckets that overlap are on lines of their own."""
        for step in ([FAST, SLOW], [FAST_PACKED, SLOW_PACKED], [HIDDEN, HIDDEN]):
            events = json.loads(chrome_trace(trace_events([step], ["", ""])))["traceEvents"]
            assert_nested([event for event in events if event["ph"] == "X"])
        lines = {(event["pid"], event["tid"]) for event in events if event["name"].startswith("bucket")}
        assert len(lines) == 4


def assert_nested(events: list[dict[str, Any]]) -> None:
    for line in {(event["pid"], event["tid"]) for event in events}:
        open_until: list[float] = []
        for event in (event for event in events if (event["pid"], event["tid"]) == line):
            begin, end = event["ts"], event["ts"] + event["dur"]
            while open_until and open_until[-1] <= begin + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


def spans(*, forward: float, backward: float, reduced: float, update: float = 1.0) -> list[Any]:
    """Milliseconds. The bucket is ready in the middle of backward."""
    ends = [forward, forward + backward]
    after = max(reduced, ends[1])
    found = [["forward", 0, ends[0]], ["backward", ends[0], ends[1]]]
    found += [["reduce", ends[0] + backward / 2, reduced, 1000]] if reduced else []
    found += [["update", after, after + update]]
    return [[kind, begin / 1e3, end / 1e3, *size] for kind, begin, end, *size in found]


def account_of(record: Any) -> dict[str, float]:
    """Medians in milliseconds."""
    account = record["parallel"]["communication"]["account"]
    return {name: 1e3 * value["median"] for name, value in account.items() if isinstance(value, dict)}


class TestRecord:
    def test_what_was_scripted_is_found(self, run, script: Script):
        """A plain step takes 10 ms and a local one 7; rank 1 computes 1 ms longer, and 0.5 ms are packed."""
        fast = {
            "train": spans(forward=2, backward=4.6, reduced=9),
            "local": spans(forward=2, backward=4, reduced=0),
            "pack": spans(forward=2, backward=4.5, reduced=0),
        }
        slow = {
            "train": spans(forward=3, backward=4.6, reduced=9),
            "local": spans(forward=3, backward=4, reduced=0),
            "pack": spans(forward=3, backward=4.5, reduced=0),
        }
        times = {"forward_s": 2e-3, "backward_s": 4e-3, "communication_s": 5e-3, "overlap_s": 3e-3}
        script(noise=1e-5, logged=times, ranks={"0": {"timeline": fast}, "1": {"timeline": slow}})
        record = run()
        expected = {"total": 2.5, "waiting": 0.5, "tail": 1.4, "slowdown": 0.1, "packing": 0.5, "buffers": 0}
        expected |= {"residual": 0, "in_flight": 4.2, "traced_step": 10}
        assert account_of(record) == pytest.approx({f"{name}_s": ms for name, ms in expected.items()}, abs=1e-3)
        communication = record["parallel"]["communication"]
        assert [1e3 * rank["waiting_s"]["median"] for rank in communication["account"]["ranks"]] == pytest.approx(
            [1, 0]
        )
        assert communication["logged"]["communication_s"]["median"] == 5e-3
        assert record["parallel"]["timeline"]["step_s"] == pytest.approx(10e-3)
        assert [lane["rank"] for lane in record["parallel"]["timeline"]["lanes"]] == [0, 1]
        assert "unexplained_communication" not in {doubt["code"] for doubt in record["doubts"]}

    def test_what_no_part_explains_is_doubted(self, run, script: Script):
        """Plain steps take 3 ms more than local ones, and the trace knows of 1."""
        train, local = spans(forward=2, backward=4, reduced=7), spans(forward=2, backward=4, reduced=0)
        script(noise=0.001, timeline={"train": train, "local": local})
        record = run()
        assert account_of(record)["residual_s"] == pytest.approx(2, abs=0.1)
        assert "unexplained_communication" in {doubt["code"] for doubt in record["doubts"]}

    def test_what_a_backend_does_not_tell_is_absent(self, run, script: Script):
        script(timeline={"absent": "scripted: not told"})
        record = run()
        assert record["outcome"] == "ok"
        assert record["parallel"]["communication"]["account"] == {"absent": "scripted: not told"}
        assert record["parallel"]["timeline"] == {"absent": "scripted: not told"}

    @pytest.mark.parametrize("kind", ["error", "exit", "memory_error"])
    def test_a_rank_that_fails_in_traced_steps_loses_nothing_else(self, run, script: Script, kind: str):
        script(noise=0.001, ranks={"1": {"fault": {"at": "timeline", "kind": kind}}})
        record = run()
        assert record["outcome"] == "ok"
        assert record["summary"]["step_s"]["median"] == pytest.approx(0.01, rel=0.02)
        assert record["parallel"]["communication"]["exposed_s"]["median"] == pytest.approx(0.003, rel=0.1)
        assert "rank 1" in record["parallel"]["communication"]["account"]["absent"]
