"""What several processes leave in a record: read, shown, exported without hosts; records of before are read too."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from factory import check_record, make_record, redact, typed_record

from deepstone.cli.show import record_lines
from deepstone.errors import RefusedInputError
from deepstone.report.book_json import _of_processes  # pyright: ignore[reportPrivateUsage]
from deepstone.results import codec
from deepstone.results.redact import PrivateNames
from deepstone.results.view import flat, words

HOSTS = ("gpu-a7.cluster.example", "gpu-b9.cluster.example")
RATE = {"median": 640.0, "low": 630.0, "high": 650.0, "n": 15}
TIME = {"median": 0.003, "low": 0.002, "high": 0.004, "n": 15}


def scaled(factor: float) -> dict[str, float]:
    return {key: value if key == "n" else value * factor for key, value in RATE.items()}


def parallel(**changed: Any) -> dict[str, Any]:
    rank = {"device": "cpu", "threads": 1, "cpus": "0", "role": "worker", "host_peak_bytes": 2**20}
    clock = {"offset_s": 0.0, "drift": 0.0, "error_s": 0.0}
    whole = {
        "world": 2,
        "nodes": 2,
        "local_batch": 4,
        "launcher": {"name": "srun", "version": "22", "argv": ["srun", "--nodelist=node-x1,node-x2"]},
        "hosts": [
            {"node": node, "host": host, "nodename": f"node-x{node + 1}", "machine": node, "cores": 2, "ranks": [node]}
            for node, host in enumerate(HOSTS)
        ],
        "ranks": [
            {"rank": node, "node": node, "host": host, **rank, "clock": clock} for node, host in enumerate(HOSTS)
        ],
        "buckets": [{"bytes": 1000}],
        "communication": {
            "exposed_s": TIME,
            "waiting_s": [TIME, TIME],
            "meeting_s": 0.0001,
            "alone_s": TIME,
            "hidden_share": 0.25,
            "local_step_s": TIME,
            "method": "in turns",
        },
        "wire": {"sent_bytes": 1000.0, "needed_bytes": 1000.0, "ratio": 1.0},
        "rates": {"per_process": scaled(0.5), "per_node": scaled(0.5), "total": RATE},
        "skew": {"spread_s": TIME, "behind_s": [TIME, {"absent": "not resolved"}], "error_s": 0.001},
    }
    return {**whole, **changed}


@pytest.mark.parametrize(
    ("low", "median", "high", "told"),
    [
        (0.2, 0.4, 0.6, "40 % (20 % – 60 %) of it hidden"),
        (-0.2, 0.1, 0.3, "at most 30 % of it hidden"),
        (-0.9, -0.8, -0.7, "none of it hidden: in a step it takes 80 % (70 % – 90 %) longer"),
        (-0.5, 0.4, 1.5, "how much of it is hidden is not resolved"),
    ],
)
def test_a_hidden_share_is_never_negative_in_words(low: float, median: float, high: float, told: str):
    whole = parallel()
    whole["communication"]["hidden_share"] = {"low": low, "median": median, "high": high, "n": 5}
    assert told in "\n".join(record_lines(typed_record(parallel=whole)))


def test_it_is_shown_and_tabled():
    record = typed_record(parallel=parallel())
    told = "\n".join(record_lines(record))
    assert "2 on 2 nodes, started by srun; 320 (315 – 325) images/s each" in told
    assert "exposed 3.00 ms (2.00 ms – 4.00 ms)" in told
    assert "end a step 3.00 ms (2.00 ms – 4.00 ms) apart" in told
    cells = flat(record)
    assert cells["parallel_world"] == 2
    assert cells["parallel_exposed_s_low"] == TIME["low"]
    assert cells["parallel_samples_per_s_per_process_median"] == 320
    assert cells["parallel_skew_s_high"] == TIME["high"]
    assert _of_processes(record)["parallel"]["exposed_s"] == TIME  # pyright: ignore[reportIndexIssue, reportArgumentType, reportCallIssue]
    assert not any(host in told for host in HOSTS)


def test_records_of_before_have_plain_rates_and_no_skew():
    earlier = parallel(rates={"per_process": 320.0, "per_node": 320.0, "total": 640.0})
    for name in ("hosts", "skew"):
        del earlier[name]
    for rank in earlier["ranks"]:
        del rank["role"], rank["clock"]
    record = typed_record(parallel=earlier)
    assert codec.as_record(record.to_json()).to_json()["parallel"] == earlier
    assert "320 images/s each" in words(record, "parallel")
    assert flat(record)["parallel_samples_per_s_per_process"] == 320


def test_one_process_has_none_of_it():
    record = typed_record()
    assert not any(words(record, name) for name in ("parallel", "communication", "ranks"))
    assert not any(name.startswith("parallel") for name in flat(record))


def test_no_host_is_given_away():
    failure = {"reason": "rank 1 on node-x2: ended by SIGKILL", "stage": "block", "stderr_tail": "gpu-a7 is gone"}
    record = make_record(outcome="crashed", parallel=parallel(ranks=[]))
    text = str(redact({**record, "failure": failure}, PrivateNames()))
    for name in ("gpu-a7", "gpu-b9", "node-x1", "node-x2"):
        assert name not in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda ranks: [], "at least one rank"),
        (lambda ranks: [*ranks, {"blocks": ranks[0]["blocks"][1:]}], "same number of blocks"),
        (lambda ranks: [*ranks, cut(ranks[0])], "same number of samples"),
    ],
)
def test_ranks_that_have_no_common_steps_are_refused(change: Any, told: str):
    record: Any = copy.deepcopy(make_record())
    launch = record["samples"]["launches"][0]
    launch["ranks"] = change(launch["ranks"])
    with pytest.raises(RefusedInputError, match=told):
        check_record(record)


def cut(rank: Any) -> Any:
    first, *others = rank["blocks"]
    return {"blocks": [{**first, "step_s": first["step_s"][1:]}, *others]}
