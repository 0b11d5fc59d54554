"""A record is refused with the path to what is wrong, and nothing but RefusedInputError ever comes out."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from depth import examples
from factory import check_record, decode_record, make_record, redact, sha
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from deepstone.errors import RefusedInputError
from deepstone.results import codec
from deepstone.results.checks import check_identity
from deepstone.results.doubt import DOUBT_CODES
from deepstone.results.identity import canonical_json, canonical_sha256, run_id
from deepstone.results.record import OUTCOMES, Identity
from deepstone.results.redact import PrivateNames

MISSING = object()
NAN = float("nan")


def changed(path: str, value: Any, **settings: Any) -> Any:
    """A valid record with one place replaced, or removed."""
    record: Any = copy.deepcopy(make_record(**settings))
    holder, keys = record, [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in keys[:-1]:
        holder = holder[key]
    if value is MISSING:
        del holder[keys[-1]]
    else:
        holder[keys[-1]] = value
    return record


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_has_a_valid_record(outcome: str):
    record = make_record(outcome=outcome)
    assert check_record(record) is record


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("summary.step_s.low", "x", "summary.step_s.low: must be a finite number, not 'x'"),
        ("summary.step_s.low", NAN, "summary.step_s.low: must be a finite number, not nan"),
        ("summary.step_s.high", float("inf"), "summary.step_s.high: must be a finite number, not inf"),
        ("summary.step_s.low", 1e9, "summary.step_s: low <= median <= high does not hold"),
        ("summary.step_s.low", -0.5, "summary.step_s.low: must be a finite number of at least 0, not -0.5"),
        ("summary.step_s.low", {"absent": "one sample"}, "summary.step_s: low and high must be absent together"),
        ("summary.step_s.high", {"absent": ""}, "summary.step_s.high: what is absent must be exactly"),
        ("summary.step_s.n", 0, "summary.step_s.n: must be a whole number of at least 1, not 0"),
        ("summary.step_s.n", True, "summary.step_s.n: must be a whole number, not true"),
        ("summary.step_s.n", 2.0, "summary.step_s.n: must be a whole number"),
        ("summary.step_s.mean", 1.0, "summary.step_s.mean: is not a known key; did you mean median?"),
        ("summary.interval", "both", "summary.interval: must be one of within process, across launches"),
        ("summary", None, "summary: must be text, a number, true, false, a list or an object, not null"),
        ("phases.data_s", {"absent": ""}, "phases.data_s: what is absent must be exactly"),
        ("phases.data_s", {"absent": "x", "n": 1}, "phases.data_s: what is absent must be exactly"),
        ("phases.method", MISSING, "phases.method: is missing"),
        ("schema", 2, "schema: is 2; this version of Deepstone reads schema 1"),
        ("schema", True, "schema: is true"),
        ("schema", 1.0, "schema: is 1.0"),
        ("surprise", 1, "surprise: is not a known key"),
        ("job", MISSING, "job: is missing"),
        ("job", "0" * 64, "job: is not the SHA-256 of identity"),
        ("job", "ABC", "job: must be 64 hexadecimal digits, not 'ABC'"),
        ("id", "../../../etc/passwd", "id: must be 20 hexadecimal digits, a dash and the attempt"),
        ("id", "0" * 20 + "-1", "id: does not begin with the first 20 digits of job"),
        ("id", "0" * 20 + "-01", "id: must be"),
        ("id", "0" * 20 + "-1\n", "id: must be"),
        ("started_at", "2026-11-15 03:40:12", "started_at: must be a UTC time like"),
        ("started_at", "2026-13-15T03:40:12.123456Z", "started_at: must be a UTC time like"),
        ("graph_sha", sha("another"), "identity.graph_sha: differs from graph_sha"),
        ("workload.batch", 9, "identity.workload.batch: differs from workload.batch"),
        ("workload.batch", True, "workload.batch: must be a whole number, not true"),
        ("workload.source", "/net.py:f", "workload.file_sha256: must be the SHA-256 of the model's file, not ''"),
        ("workload.file_sha256", sha("x"), "workload.file_sha256: must be empty for a model of the zoo"),
        ("setup.requested.threads", 3, "identity.requested: differs from setup.requested"),
        ("setup.requested.threads", False, "setup.requested.threads: must be text or a whole number, not false"),
        ("setup.effective.layout.source", "guessed", "setup.effective.layout.source: must be one of observed, set"),
        ("setup.effective.layout.value", [], "setup.effective.layout.value: must be text, a number, true or false"),
        ("command", [], "command: must be a list of at least 1"),
        ("command", ["a", 1], "command[1]: must be text, not 1"),
        ("command", "deepstone run", "command: must be a list, not 'deepstone run'"),
        ("outcome", "fine", "outcome: must be one of ok"),
        ("failure", {"reason": "r", "stage": "s", "stderr_tail": ""}, "failure: does not fit the outcome ok"),
        ("samples.warmup_steps", 6, "samples.warmup_steps: is not the sum over the launches"),
        (
            "samples.launches.0.ranks.0.blocks.0.step_s.3",
            "x",
            "samples.launches[0].ranks[0].blocks[0].step_s[3]: must be a finite number, not 'x'",
        ),
        (
            "samples.launches.0.ranks.0.blocks.0.step_s.3",
            -1.0,
            "samples.launches[0].ranks[0].blocks[0].step_s[3]: must be a finite number of at least 0",
        ),
        ("samples.launches.0.ranks.0.blocks.0.step_s.3", NAN, "step_s[3]: must be a finite number, not nan"),
        ("samples.launches.0.ranks.0.blocks.0.steps_per_sample", 0, "steps_per_sample: must be a whole number"),
        ("startup.import", 1.0, "startup.import: the name must end in _s, its unit"),
        ("memory.host_peak_bytes", 1.5, "memory.host_peak_bytes: must be a whole number, not 1.5"),
        ("energy", "none", "energy: must be an object, not 'none'"),
        ("cost.flops", -1, "cost.flops: must be a whole number of at least 0, not -1"),
        ("cost.flops", 2**63, "cost.flops: must be a number of at most 63 bits, not a number of more than 63 bits"),
        ("cost.flops", 10**5000, "cost.flops: must be a number of at most 63 bits"),
        ("share_of_peak", "half", "share_of_peak: must be a finite number or an object, not 'half'"),
        ("environment.machine", MISSING, "environment.machine: is missing"),
        ("environment.cpu", "a\0b", "environment.cpu: must be text without NUL"),
        ("environment.cpu", "\ud800", "environment.cpu: must be text without NUL and without lone surrogates"),
        ("environment", {"machine": {}, "framework": {}, "/etc": 1}, "environment: has the key '/etc'"),
        ("environment", {"machine": {}, "framework": {}, "": 1}, "environment: has the key ''"),
        ("environment.x", object(), "environment.x: must be text, a number, true, false, a list or an object"),
        ("doubts.0.code", "bad_mood", "doubts[0].code: must be one of cpu_steal"),
        ("doubts.0.detail", 3, "doubts[0].detail: must be text, not 3"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isprintable() else "",
)
def test_what_is_wrong_is_said_with_its_place(path: str, value: Any, message: str):
    with pytest.raises(RefusedInputError, match=re.escape(message)):
        check_record(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("failure", {"absent": "why"}, "failure: does not fit the outcome crashed"),
        ("failure.signal", "segv", "failure.signal: must be a signal's name like SIGSEGV, not 'segv'"),
        ("failure.exit_code", "1", "failure.exit_code: must be a whole number, not '1'"),
        ("failure.reason", "", "failure.reason: must be text that is not empty"),
        ("failure.stderr_tail", MISSING, "failure.stderr_tail: is missing"),
    ],
)
def test_a_failure_is_told_whole(path: str, value: Any, message: str):
    with pytest.raises(RefusedInputError, match=re.escape(message)):
        check_record(changed(path, value, outcome="crashed"))


@pytest.mark.parametrize("value", [None, [], "record", 1, {}, {"absent": "x"}])
def test_what_is_no_record_at_all_is_refused(value: object):
    with pytest.raises(RefusedInputError):
        check_record(value)


@pytest.mark.parametrize("model", ["/home/alice/net", "~alice/net", "~/net", "C:\\nets\\net", "x=/etc/net"])
def test_an_identity_holds_no_path_because_redaction_leaves_it_alone(model: str):
    with pytest.raises(RefusedInputError, match=r"identity.workload.model: must be a name that holds no path"):
        check_identity(codec.convert(make_record(model=model)["identity"], Identity))


def test_a_name_with_a_slash_is_not_a_path():
    check_identity(codec.convert(make_record(model="zoo/resnet")["identity"], Identity))


def test_nesting_ends_at_32_levels():
    value: Any = {}
    for _ in range(28):  # 29 levels; environment, machine and the record itself are three more
        value = {"a": value}
    check_record(changed("environment.framework.deep", value))
    with pytest.raises(RefusedInputError, match="nested more than 32 levels deep"):
        check_record(changed("environment.framework.deep", {"a": value}))


def test_an_endless_value_is_refused():
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(RefusedInputError, match="nested"):
        check_record(changed("energy", loop))


def test_a_long_value_does_not_make_a_long_message():
    with pytest.raises(RefusedInputError) as caught:
        check_record(changed("outcome", "x" * 1_000_000))
    assert len(str(caught.value)) < 200


def test_every_doubt_says_what_it_means():
    assert all(meaning for meaning in DOUBT_CODES.values())


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64), 10**4000])
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["", "\0", "\ud800", "/etc/passwd", "ok", "absent", "0" * 64])
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [way] if way else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*way, key))
    elif isinstance(value, list):
        for position, item in enumerate(value[:2]):
            found += places(item, (*way, position))
    return found


PLACES = {outcome: places(make_record(outcome=outcome)) for outcome in ("ok", "crashed")}


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid record in which a few places were replaced, removed or added to; its names made to fit again, or not."""
    outcome = draw(st.sampled_from(["ok", "crashed"]))
    record: Any = copy.deepcopy(make_record(outcome=outcome, steps=3))
    for _ in range(draw(st.integers(1, 3))):
        _mutate(record, draw(st.sampled_from(PLACES[outcome])), draw)
    if draw(st.booleans()):
        _rename(record)
    return record


def _mutate(record: Any, way: tuple[Any, ...], draw: st.DrawFn) -> None:
    holder = record
    try:
        for key in way[:-1]:
            holder = holder[key]
    except (KeyError, IndexError, TypeError):  # an earlier mutation took the way there
        return
    kind = draw(st.sampled_from(["replace", "remove", "add"]))
    if isinstance(holder, dict):
        if kind == "remove":
            holder.pop(way[-1], None)
        else:
            holder[way[-1] if kind == "replace" else draw(st.text(max_size=6))] = draw(JUNK)
    elif isinstance(holder, list):
        holder.append(draw(JUNK))


def _rename(record: Any) -> None:
    try:
        record["job"] = canonical_sha256(record["identity"])
    except (KeyError, ValueError):
        return
    record["id"] = run_id(record["job"], 1)


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_any_mutation_is_accepted_and_round_trips_or_is_refused(record: Any):
    try:
        check_record(record)
    except RefusedInputError as refused:
        str(refused).encode("utf-8")  # the message can be printed whatever the record held
        return
    assert decode_record(canonical_json(record).encode()).to_json() == record
    cleaned = redact(record, PrivateNames(hosts=frozenset({"node01"}), users=frozenset({"ok"})))
    assert (cleaned["id"], cleaned["job"]) == (record["id"], record["job"])


@examples(100)
@given(JUNK)
def test_junk_is_refused(value: object):
    with pytest.raises(RefusedInputError):
        check_record(value)
