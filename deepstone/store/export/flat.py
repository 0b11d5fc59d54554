"""A run as one line of a table, for CSV, Parquet and data frames."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from deepstone.records.schema import Record, is_absent
from deepstone.store.rows import axis_value

Cell: TypeAlias = str | int | float | bool

_MACHINE_PART: Final = 12


def flat(record: Record) -> dict[str, Cell]:
    """The columns of a run in the order in which a reader wants them; raw samples stay in the JSON."""
    workload, setup = record["workload"], record["setup"]
    effective = {axis: effect["value"] for axis, effect in setup["effective"].items()}
    return {
        "id": record["id"],
        "started_at": record["started_at"],
        "model": workload["model"],
        "framework": axis_value(record, "framework"),
        "device": axis_value(record, "device"),
        "batch": workload["batch"],
        "phase": workload["phase"],
        "input": workload["input"],
        "repetition": record["identity"]["repetition"],
        "outcome": record["outcome"],
        **_under("failure", record["failure"]),
        **_under("", record["summary"]),
        **_under("phase", record["phases"]),
        **_under("startup", record["startup"]),
        **_under("memory", record["memory"]),
        **_under("energy", record["energy"]),
        **_under("cost", record["cost"]),
        **_under("share_of_peak", record["share_of_peak"]),
        **_under("requested", setup["requested"]),
        **_under("effective", effective),
        "doubts": " ".join(doubt["code"] for doubt in record["doubts"]),
        "warmup_steps": record["samples"]["warmup_steps"],
        "launches": len(record["samples"]["launches"]),
        **_where(record),
        "source": workload["source"],
        "graph_sha": record["graph_sha"],
        "job": record["job"],
        "command": shlex.join(record["command"]),
    }


def _where(record: Record) -> dict[str, Cell]:
    """The machine by the beginning of its hash, which tells machines apart, and by names, which may not."""
    environment = record["environment"]
    named = {
        "cpu": _text_at(environment, "machine", "cpu", "model"),
        "gpu": _text_at(environment, "framework", "gpu"),
        "framework_version": _text_at(environment, "framework", "version"),
        "deepstone": _text_at(environment, "deepstone"),
    }
    known = {name: text for name, text in named.items() if text}
    return {"machine": record["identity"]["machine_sha"][:_MACHINE_PART], **known}


def _text_at(value: object, *keys: str) -> str:
    """The text there; empty where there is something else, for what a record tells of its environment is free."""
    for key in keys:
        value = cast(Mapping[str, object], value).get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def columns_of(rows: Iterable[Mapping[str, Cell]]) -> list[str]:
    """Every column that a row has, each where it was first seen."""
    return list(dict.fromkeys(column for cells in rows for column in cells))


def of_one_type(values: Sequence[Cell | None]) -> list[Cell | None]:
    """A column as typed tables need it: numbers stay numbers where all are, and become text where some are words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return list(values)
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else _as_text(value) for value in values]


def _as_text(value: Cell) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _under(prefix: str, value: object) -> dict[str, Cell]:
    """The single values below a key, named by the way to them; lists and what is absent have no column."""
    if is_absent(value) or isinstance(value, list):
        return {}
    if not isinstance(value, dict):
        return {prefix: cast(Cell, value)}
    cells: dict[str, Cell] = {}
    for key, item in cast(Mapping[str, Any], value).items():
        cells |= _under(f"{prefix}_{key}" if prefix else key, item)
    return cells
