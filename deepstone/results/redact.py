"""Redacts records for sharing: removes the names of host, user and boards, paths, and secrets.

The result is a valid record with the same id: the identity contains no path (a check ensures that) and does not change,
nor does any value from a closed list.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from deepstone.results import codec
from deepstone.results.findings import Finding
from deepstone.results.parts import Json
from deepstone.results.paths import (
    PATH,
    PATH_CHARACTER,
    without_argument_path,
    without_bare_paths,
    without_quoted_paths,
)
from deepstone.results.record import Record
from deepstone.results.variables import publishable, without_secrets

HOST: Final = "<host>"
USER: Final = "<user>"
BOARD: Final = "GPU-<uuid>"

_Preserved: TypeAlias = "Mapping[str, _Preserved] | Literal[True]"  # True: the whole value

_PRESERVED: Final = (
    ("schema",),
    ("id",),
    ("origin",),
    ("job",),
    ("started_at",),
    ("graph_sha",),
    ("identity",),
    ("outcome",),
    ("workload", "model"),
    ("workload", "phase"),
    ("workload", "input"),
    ("workload", "file_sha256"),
    ("setup", "requested"),
    ("setup", "effective", "*", "source"),
    ("failure", "signal"),
    ("samples",),
    ("summary", "interval"),
    ("doubts", "*", "code"),
)
_PRESERVED_IN_FINDING: Final = (*_PRESERVED[:13], ("task",), ("kind",), ("model",))
_HOST_KEYS: Final = frozenset({"host", "hostname", "nodename", "fqdn"})
_USER_KEYS: Final = frozenset({"user", "username", "login"})
_VARIABLES_KEY: Final = "variables"

_MOST_NAMES: Final = 1000  # a record with more is an attack
_BOARD = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HOME_OWNER = re.compile(r"(?:/home/|/Users/|~)([A-Za-z_][\w.-]*)(?=/)")


class PrivateNames(Struct, frozen=True, kw_only=True):
    """Private names of this machine; the record has those of the machine that it was measured on."""

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    @staticmethod
    def of_this_machine() -> PrivateNames:
        users = {os.environ.get("USER", ""), os.environ.get("LOGNAME", "")}
        folders = {os.environ.get("HOME", "")}
        try:
            entry = pwd.getpwuid(os.getuid())
        except KeyError:  # a container may run as a user id without a name
            pass
        else:
            users.add(entry.pw_name)
            folders.add(entry.pw_dir)
        return PrivateNames(
            hosts=frozenset({socket.gethostname()}), users=frozenset(users), folders=frozenset(folders - {"/"})
        )


def redact_record(record: Record, names: PrivateNames) -> Record:
    """Return a copy with placeholders for hosts, users and paths; it passes the same checks under the same id."""
    return codec.as_record(_redacted(record.to_json(), names, _PRESERVED_TREE))


def redact_finding(finding: Finding, names: PrivateNames) -> Finding:
    """Do the same for a finding."""
    return codec.as_finding(_redacted(finding.to_json(), names, _tree(_PRESERVED_IN_FINDING)))


def _redacted(content: dict[str, Json], names: PrivateNames, preserved: _Preserved) -> dict[str, Json]:
    workload = content.get("workload")
    source = str(workload.get("source", "zoo")) if isinstance(workload, dict) else "zoo"
    places: list[Json] = [content["environment"], content.get("parallel", {})]
    replace = _Replacer(
        hosts=names.hosts | _texts_under(places, _HOST_KEYS) | _hosts_of_command(content.get("command", "")),
        users=names.users | _texts_under(content["environment"], _USER_KEYS) | _home_owners(content),
        folders=names.folders | _model_path(source),
    )
    cleaned: dict[str, Json] = {
        key: _cleaned(item, _below(preserved, key), replace.in_argument if key == "command" else replace.in_text)
        for key, item in content.items()
    }
    if isinstance(workload := cleaned.get("workload"), dict) and source != "zoo":
        cleaned["workload"] = {**workload, "source": PATH}
    return cleaned


def _hosts_of_command(command: Json) -> frozenset[str]:
    """Return those that `--hosts` names: a job that failed has them nowhere else."""
    words = [str(word) for word in command] if isinstance(command, list) else str(command).split()
    given = next((later for word, later in pairwise(words) if word == "--hosts"), "")
    return frozenset(host for host in given.strip("'\"").split(",") if host)


def _model_path(source: str) -> frozenset[str]:
    """Return the model's file as given: a relative path, or one with spaces, cannot be recognized in text."""
    return frozenset() if source == "zoo" else frozenset({source, source.rpartition(":")[0]})


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _texts_under(value: Json, keys: frozenset[str]) -> frozenset[str]:
    """Return the texts under one of these keys, at any depth."""
    found: set[str] = set()
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and key.lower() in keys:
                found.add(item)
            found |= _texts_under(item, keys)
    elif isinstance(value, list):
        for item in value:
            found |= _texts_under(item, keys)
    return frozenset(found)


def _home_owners(content: Mapping[str, Json]) -> frozenset[str]:
    """Return the users whose home folders it contains; their names may occur elsewhere too."""
    texts = _texts([value for key, value in content.items() if key != "samples"])
    return frozenset(owner for text in texts for owner in _HOME_OWNER.findall(text))


def _cleaned(value: Json, preserved: _Preserved, replace: Callable[[str], str]) -> Json:
    """Replace every text in the value, except at preserved places."""
    if preserved is True:
        return value
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        items = _without_unknown_variables(value)
        return {key: _cleaned(item, _below(preserved, key), replace) for key, item in items.items()}
    if isinstance(value, list):
        below = _below(preserved, "*")
        return [_cleaned(item, below, replace) for item in value]
    return value


def _without_unknown_variables(items: dict[str, Json]) -> dict[str, Json]:
    """Remove them at any depth: a finding has the environment of each of its parts."""
    variables = items.get(_VARIABLES_KEY)
    if not isinstance(variables, dict) or "absent" in variables:
        return items
    return {**items, _VARIABLES_KEY: publishable(variables)}


def _tree(places: Iterable[tuple[str, ...]]) -> _Preserved:
    """Turn places into a tree, so that a walk over a record visits each level once."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in places:
        below.setdefault(first, []).append(tuple(rest))
    return {key: True if () in rests else _tree(rests) for key, rests in below.items()}


def _below(preserved: _Preserved, key: str) -> _Preserved:
    if not preserved or preserved is True:
        return preserved
    return preserved.get(key) or preserved.get("*") or {}


_PRESERVED_TREE: Final = _tree(_PRESERVED)


class _Replacer:
    """Replaces one record's names by placeholders."""

    def __init__(self, *, hosts: frozenset[str], users: frozenset[str], folders: frozenset[str]) -> None:
        short_hosts = {host.partition(".")[0] for host in hosts}
        self._folders = re.compile(rf"(?<![\w/.]){_any_of(folders)}(?:/{PATH_CHARACTER}*|(?![\w/]))")
        self._hosts = _words(hosts | short_hosts, tail=r"(?:\.[A-Za-z0-9-]+)*")
        self._users = _words(users)

    def in_argument(self, text: str) -> str:
        return self.in_text(without_argument_path(without_secrets(text)))

    def in_text(self, text: str) -> str:
        text = without_secrets(text)  # before paths, since redacting a path may split a secret
        text = without_quoted_paths(text)
        text = self._folders.sub(PATH, text)
        text = without_bare_paths(text)
        text = _BOARD.sub(BOARD, text)
        text = self._hosts.sub(HOST, text)
        return self._users.sub(USER, text)


def _any_of(names: Iterable[str]) -> str:
    """Return a pattern for any of the names, the longest first; it matches nothing if there are none."""
    known = sorted((name for name in names if name), key=len, reverse=True)[:_MOST_NAMES]
    return f"(?:{'|'.join(map(re.escape, known))})" if known else "(?!)"


def _words(names: Iterable[str], *, tail: str = "") -> re.Pattern[str]:
    """Return a pattern for any of the names as a whole word, but not inside a placeholder."""
    return re.compile(rf"(?<![\w<]){_any_of(names)}{tail}(?!\w)", re.IGNORECASE)
