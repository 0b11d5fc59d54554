"""Recognizes what a command printed with `--json`, which is no run and no finding, so that `import` says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deepstone.results.plain import is_object, shown

_EXPORT: Final = "import what `deepstone results export -o runs.jsonl` writes where it was measured"
# By `kind`: what printed it.
_KINDS: Final[Mapping[str, str]] = {
    **{kind: f"deepstone {kind} --json" for kind in ("layers", "conv", "memory", "comm", "tune", "scale", "report")},
    "peaks": "deepstone doctor --peaks --json",
    "paper": "deepstone papers --json",
    "study": "deepstone study --json",
}
# By keys that only it has.
_KEYS: Final[Mapping[frozenset[str], str]] = {
    frozenset({"pairing", "verdict"}): "deepstone compare --json",
    frozenset({"pairing", "ranks"}): "deepstone compare --json",
    frozenset({"reference", "frameworks"}): "deepstone verify --json",
    frozenset({"advice", "facts"}): "deepstone advise --json",
    frozenset({"can_run"}): "--dry-run --json",
    frozenset({"starts", "looks"}): "deepstone tune --dry-run --json",
    frozenset({"requested", "started_at", "outcome"}): "deepstone results list --json",
}
_OF_RESULTS: Final = ("identity", "samples", "task", "record", "finding")  # a run or a finding has one of them


def answer_of_command(content: object) -> str:
    """Say what this is if it is the answer of a command, and what to import instead; nothing if it may be a result."""
    if not is_object(content) or any(key in content for key in _OF_RESULTS):
        return ""
    kind, id = content.get("kind"), content.get("id")
    printed = _KINDS.get(kind, "") if isinstance(kind, str) else ""
    printed = printed or next((command for keys, command in _KEYS.items() if keys <= content.keys()), "")
    if not printed:
        return ""
    stored = f"; the store there has it as {shown(id)}" if isinstance(id, str) and kind in _KINDS else ""
    return f"is what `{printed}` printed, an answer and not a stored run or finding{stored}; {_EXPORT}"
