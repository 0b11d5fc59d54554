"""Whether a value is a record we would have written, said with the path to what is wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from deepstone.errors import RefusedInputError
from deepstone.records.identity import JOB_PART, JOB_PATTERN, RUN_PATTERN, job_id
from deepstone.records.paths import holds_path
from deepstone.records.schema import (
    DOUBT_CODES,
    INTERVALS,
    OUTCOMES,
    PHASES,
    SCHEMA,
    SOURCES_OF_EFFECT,
    Identity,
    Record,
    is_absent,
)
from deepstone.records.shape import (
    Check,
    Place,
    any_object,
    as_object,
    fields,
    list_of,
    number,
    one_of,
    or_absent,
    plain,
    refuse,
    refuse_because,
    shown,
    some_text,
    table,
    text,
    text_like,
    times,
    whole,
)

_IDENTITY_WORKLOAD = ("model", "batch", "phase", "input")
_IDENTITY_PLACE: Place = (None, "identity")
_STARTED_AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_SIGNAL = re.compile(r"SIG[A-Z0-9+-]{1,20}")


def check_record(value: object) -> Record:
    """The same value, known to be a record; RefusedInputError tells the first thing that is wrong."""
    plain(value)
    _RECORD(value, None)
    record = cast(Record, value)
    _check_names(record)
    _check_mirrors(record)
    _check_failure(record)
    _check_warmup(record)
    return record


def check_identity(value: object) -> Identity:
    """The same value, known to be an identity. A runner asks before it measures what could not be stored."""
    plain(value, _IDENTITY_PLACE)
    _IDENTITY(value, _IDENTITY_PLACE)
    return cast(Identity, value)


def _schema(value: object, where: Place) -> None:
    if type(value) is not int or value != SCHEMA:
        refuse_because(where, f"is {shown(value)}; this version of Deepstone reads schema {SCHEMA}")


def _started_at(value: object, where: Place) -> None:
    what = "a UTC time like 2026-11-15T03:40:12.123456Z"
    if not isinstance(value, str) or not _STARTED_AT.fullmatch(value):
        refuse(where, what, value)
    try:
        datetime.fromisoformat(value)
    except ValueError:
        refuse(where, what, value)


def _pathless(value: object, where: Place) -> None:
    """Text that names a job. Redaction may not touch it, so it must hold nothing to redact."""
    if not isinstance(value, str) or not value or holds_path(value):
        refuse(where, "a name that holds no path", value)


def _request(value: object, where: Place) -> None:
    if isinstance(value, str):
        _pathless(value, where)
    elif not isinstance(value, int) or isinstance(value, bool):
        refuse(where, "text or a whole number", value)


def _scalar(value: object, where: Place) -> None:
    if isinstance(value, (dict, list)):
        refuse(where, "text, a number, true or false", cast(object, value))


def _quantity(least: float | None) -> Check:
    keys = fields({"median": number(least), "low": number(least), "high": number(least), "n": whole(1)})

    def check(value: object, where: Place) -> None:
        keys(value, where)
        quantity = cast(Mapping[str, float], value)
        if not quantity["low"] <= quantity["median"] <= quantity["high"]:
            refuse_because(where, "low <= median <= high does not hold")

    return check


def _workload(value: object, where: Place) -> None:
    _WORKLOAD(value, where)
    workload = cast(Mapping[str, str], value)
    from_zoo = workload["source"] == "zoo"
    if from_zoo != (workload["file_sha256"] == ""):
        wanted = "empty for a model of the zoo" if from_zoo else "the SHA-256 of the model's file"
        refuse((where, "file_sha256"), wanted, workload["file_sha256"])


def _environment(value: object, where: Place) -> None:
    environment = as_object(value, where)
    for part in ("machine", "framework"):
        if part not in environment:
            refuse_because((where, part), "is missing")
        or_absent(any_object)(environment[part], (where, part))


def _share_of_peak(value: object, where: Place) -> None:
    if not isinstance(value, dict):
        number()(value, where)


_SHA = text_like(JOB_PATTERN, "64 hexadecimal digits")
_SHA_OR_EMPTY = text_like(re.compile(f"|{JOB_PATTERN.pattern}"), "64 hexadecimal digits, or empty")
_TIME = _quantity(0)
_PHASE = or_absent(_quantity(None))  # a phase found as a difference may come out negative, and is shown so

_IDENTITY = fields(
    {
        "graph_sha": _SHA,
        "workload": fields(
            {"model": _pathless, "batch": whole(1), "phase": one_of(PHASES), "input": _pathless},
        ),
        "requested": table(_request),
        "environment_sha": _SHA,
        "machine_sha": _SHA,
        "repetition": whole(1),
    }
)
_WORKLOAD = fields(
    {
        "model": _pathless,
        "source": some_text,
        "file_sha256": _SHA_OR_EMPTY,
        "batch": whole(1),
        "phase": one_of(PHASES),
        "input": _pathless,
    }
)
_SETUP = fields(
    {
        "requested": table(_request),
        "effective": table(fields({"value": _scalar, "source": one_of(SOURCES_OF_EFFECT)})),
    }
)
_FAILURE = fields(
    {"reason": some_text, "stage": some_text, "stderr_tail": text},
    optional={"signal": text_like(_SIGNAL, "a signal's name like SIGSEGV"), "exit_code": whole(None)},
)
_BLOCK = fields({"start_s": number(), "steps_per_sample": whole(1), "step_s": times})
_LAUNCH = fields({"ranks": list_of(fields({"blocks": list_of(_BLOCK)})), "warmup_steps": whole()})
_SUMMARY = fields(
    {
        "step_s": _TIME,
        "samples_per_s": _TIME,
        "sustained_samples_per_s": number(),
        "interval": one_of(INTERVALS),
        "stopped": some_text,
    }
)
_PHASES = fields(
    {
        "data_s": _PHASE,
        "forward_s": _PHASE,
        "backward_s": _PHASE,
        "communication_s": _PHASE,
        "update_s": _PHASE,
        "method": some_text,
    }
)
_RECORD = fields(
    {
        "schema": _schema,
        "id": text_like(RUN_PATTERN, "20 hexadecimal digits, a dash and the attempt"),
        "job": _SHA,
        "started_at": _started_at,
        "graph_sha": _SHA,
        "command": list_of(text, least=1),
        "identity": _IDENTITY,
        "workload": _workload,
        "setup": _SETUP,
        "outcome": one_of(OUTCOMES),
        "failure": or_absent(_FAILURE),
        "samples": fields({"launches": list_of(_LAUNCH), "warmup_steps": whole()}),
        "summary": or_absent(_SUMMARY),
        "phases": or_absent(_PHASES),
        "startup": or_absent(table(or_absent(number()), suffix="_s")),
        "memory": or_absent(table(or_absent(whole()), suffix="_bytes")),
        "energy": or_absent(any_object),
        "cost": fields({"flops": or_absent(whole()), "bytes": or_absent(whole())}),
        "share_of_peak": or_absent(_share_of_peak),
        "environment": _environment,
        "comparison": or_absent(any_object),
        "doubts": list_of(fields({"code": one_of(DOUBT_CODES), "detail": some_text})),
    }
)


def _check_names(record: Record) -> None:
    """A run is named by its job and a job by its identity, so no name can be chosen freely."""
    if record["job"] != job_id(record["identity"]):
        raise RefusedInputError("job: is not the SHA-256 of identity")
    if record["id"].split("-")[0] != record["job"][:JOB_PART]:
        raise RefusedInputError("id: does not begin with the first 20 digits of job")


def _check_mirrors(record: Record) -> None:
    """What identity repeats must be what the rest of the record says."""
    identity = record["identity"]
    _same("identity.graph_sha", identity["graph_sha"], "graph_sha", record["graph_sha"])
    _same("identity.requested", identity["requested"], "setup.requested", record["setup"]["requested"])
    measured = cast(Mapping[str, Any], record["workload"])
    named = cast(Mapping[str, Any], identity["workload"])
    for key in _IDENTITY_WORKLOAD:
        _same(f"identity.workload.{key}", named[key], f"workload.{key}", measured[key])


def _same(where: str, value: object, other_where: str, other: object) -> None:
    if value != other:
        raise RefusedInputError(f"{where}: differs from {other_where}")


def _check_failure(record: Record) -> None:
    if (record["outcome"] == "ok") != is_absent(record["failure"]):
        raise RefusedInputError(f"failure: does not fit the outcome {record['outcome']}; it is absent exactly when ok")


def _check_warmup(record: Record) -> None:
    samples = record["samples"]
    if samples["warmup_steps"] != sum(launch["warmup_steps"] for launch in samples["launches"]):
        raise RefusedInputError("samples.warmup_steps: is not the sum over the launches")
