"""A record fit to be given away: without the names of its host, its user, its boards and its paths, without secrets.

The result is a valid record under the same name: identity can hold no path (the check sees to that) and is left alone,
as is every value from a closed list.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

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

_Kept: TypeAlias = "Mapping[str, _Kept] | Literal[True]"  # True: whatever stands here

_KEPT: Final = (
    ("schema",),
    ("id",),
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
_KEPT_OF_FINDING: Final = (*_KEPT[:12], ("task",), ("kind",), ("model",))
_HOST_KEYS: Final = frozenset({"host", "hostname", "nodename", "fqdn"})
_USER_KEYS: Final = frozenset({"user", "username", "login"})
_VARIABLES_KEY: Final = "variables"

_MOST_NAMES: Final = 1000  # a record that names more was made to choke us
_BOARD = re.compile(r"\b(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HOME_OWNER = re.compile(r"(?:/home/|/Users/|~)([A-Za-z_][\w.-]*)(?=/)")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateNames:
    """What must not leave this machine, beside what the record itself tells of the machine it was measured on."""

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    @staticmethod
    def of_this_machine() -> PrivateNames:
        users = {os.environ.get("USER", ""), os.environ.get("LOGNAME", "")}
        folders = {os.environ.get("HOME", "")}
        try:
            entry = pwd.getpwuid(os.getuid())
        except KeyError:  # a container may run as a number without a name
            pass
        else:
            users.add(entry.pw_name)
            folders.add(entry.pw_dir)
        return PrivateNames(
            hosts=frozenset({socket.gethostname()}), users=frozenset(users), folders=frozenset(folders - {"/"})
        )


def redact_record(record: Record, names: PrivateNames) -> Record:
    """A copy in which placeholders stand for hosts, users and paths; it passes the same checks under the same id."""
    return codec.as_record(_redacted(record.to_json(), names, _KEPT_TREE))


def redact_finding(finding: Finding, names: PrivateNames) -> Finding:
    """The same of what else was found out about a job."""
    return codec.as_finding(_redacted(finding.to_json(), names, _tree(_KEPT_OF_FINDING)))


def _redacted(content: dict[str, Json], names: PrivateNames, kept: _Kept) -> dict[str, Json]:
    workload = content.get("workload")
    source = str(workload.get("source", "zoo")) if isinstance(workload, dict) else "zoo"
    replace = _Replacer(
        hosts=names.hosts | _told(content["environment"], _HOST_KEYS),
        users=names.users | _told(content["environment"], _USER_KEYS) | _home_owners(content),
        folders=names.folders | _model_path(source),
    )
    cleaned: dict[str, Json] = {
        key: _cleaned(item, _below(kept, key), replace.in_argument if key == "command" else replace.in_text)
        for key, item in content.items()
    }
    if isinstance(workload := cleaned.get("workload"), dict) and source != "zoo":
        cleaned["workload"] = {**workload, "source": PATH}
    return cleaned


def _model_path(source: str) -> frozenset[str]:
    """The model's file as it was given: a relative path, or one with spaces, is recognized only by knowing it."""
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


def _told(value: Json, keys: frozenset[str]) -> frozenset[str]:
    """The texts that stand under one of these keys, at any depth."""
    found: set[str] = set()
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and key.lower() in keys:
                found.add(item)
            found |= _told(item, keys)
    elif isinstance(value, list):
        for item in value:
            found |= _told(item, keys)
    return frozenset(found)


def _home_owners(content: Mapping[str, Json]) -> frozenset[str]:
    """Users whose home folders it names; they may be named elsewhere in it too."""
    texts = _texts([value for key, value in content.items() if key != "samples"])
    return frozenset(owner for text in texts for owner in _HOME_OWNER.findall(text))


def _cleaned(value: Json, kept: _Kept, replace: Callable[[str], str]) -> Json:
    """The value with every text in it replaced, but for what stands at a place that is kept."""
    if kept is True:
        return value
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        items = _without_unknown_variables(value)
        return {key: _cleaned(item, _below(kept, key), replace) for key, item in items.items()}
    if isinstance(value, list):
        below = _below(kept, "*")
        return [_cleaned(item, below, replace) for item in value]
    return value


def _without_unknown_variables(items: dict[str, Json]) -> dict[str, Json]:
    """At whatever depth they stand: a finding tells the environment of each of its parts."""
    variables = items.get(_VARIABLES_KEY)
    if not isinstance(variables, dict) or "absent" in variables:
        return items
    return {**items, _VARIABLES_KEY: publishable(variables)}


def _tree(places: Iterable[tuple[str, ...]]) -> _Kept:
    """Places that share their beginning under one key, so that a walk over a record looks at each step once."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in places:
        below.setdefault(first, []).append(tuple(rest))
    return {key: True if () in rests else _tree(rests) for key, rests in below.items()}


def _below(kept: _Kept, key: str) -> _Kept:
    if not kept or kept is True:
        return kept
    return kept.get(key) or kept.get("*") or {}


_KEPT_TREE: Final = _tree(_KEPT)


class _Replacer:
    """Puts placeholders for one record's names."""

    def __init__(self, *, hosts: frozenset[str], users: frozenset[str], folders: frozenset[str]) -> None:
        short_hosts = {host.partition(".")[0] for host in hosts}
        self._folders = re.compile(rf"(?<![\w/.]){_any_of(folders)}(?:/{PATH_CHARACTER}*|(?![\w/]))")
        self._hosts = _words(hosts | short_hosts, tail=r"(?:\.[A-Za-z0-9-]+)*")
        self._users = _words(users)

    def in_argument(self, text: str) -> str:
        return self.in_text(without_argument_path(without_secrets(text)))

    def in_text(self, text: str) -> str:
        text = without_secrets(text)  # before paths, which may cut a secret in two
        text = without_quoted_paths(text)
        text = self._folders.sub(PATH, text)
        text = without_bare_paths(text)
        text = _BOARD.sub(BOARD, text)
        text = self._hosts.sub(HOST, text)
        return self._users.sub(USER, text)


def _any_of(names: Iterable[str]) -> str:
    """A pattern for any of the names, the longest first; for nothing when there are none."""
    known = sorted((name for name in names if name), key=len, reverse=True)[:_MOST_NAMES]
    return f"(?:{'|'.join(map(re.escape, known))})" if known else "(?!)"


def _words(names: Iterable[str], *, tail: str = "") -> re.Pattern[str]:
    """Any of the names as a whole word, but never inside a placeholder."""
    return re.compile(rf"(?<![\w<]){_any_of(names)}{tail}(?!\w)", re.IGNORECASE)
