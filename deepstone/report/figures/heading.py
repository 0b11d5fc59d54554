"""What all figures of a result say about it: what was measured, with which command, and which doubts there are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from deepstone.records.shape import refuse_because
from deepstone.report.figure import NothingToDrawError
from deepstone.report.reading import Node
from deepstone.report.wording import harmless, shortened

_LONGEST_COMMAND = 400
_FRAMEWORKS_AT_MOST = 12  # more bars side by side are no picture
_AXES_TOLD = ("framework", "device", "precision", "layout", "compile", "threads")


def by_framework(result: Node) -> Mapping[str, Node]:
    """The results in a result: one for each framework that could be measured, or itself under no name."""
    measured = {name: part for name, part in _all_frameworks(result).items() if _outcome(part) == "ok"}
    if not measured:
        raise NothingToDrawError(f"nothing was measured: {'; '.join(failures(result))}")
    return measured


def failures(result: Node) -> list[str]:
    """What became of the frameworks that could not be measured."""
    lines: list[str] = []
    for name, part in _all_frameworks(result).items():
        if _outcome(part) != "ok":
            why = part.node("failure").text("reason", "") if part.has("failure") else ""
            lines.append(": ".join(word for word in (name, _outcome(part), why) if word))
    return lines


def _all_frameworks(result: Node) -> Mapping[str, Node]:
    if not result.has("frameworks"):
        return {"": result}
    found = result.named_nodes("frameworks")
    if not 1 <= len(found) <= _FRAMEWORKS_AT_MOST:
        refuse_because((None, "frameworks"), f"must hold 1 to {_FRAMEWORKS_AT_MOST} frameworks, not {len(found)}")
    return found


def _outcome(result: Node) -> str:
    return result.text("outcome", "ok")


def subtitle(result: Node) -> str:
    """Batch, phase and setup, as far as it tells; what all frameworks share when there are several."""
    parts = by_framework(result)
    described = [_described(part) for part in parts.values()]
    common = [words for words in described[0] if all(words in other for other in described)]
    return " · ".join([*common, *([" against ".join(parts)] if len(parts) > 1 else [])])


def commands(result: Node) -> tuple[str, ...]:
    """That of the whole result, or of each of its parts."""
    for nodes in ([result], list(_inner(result).values())):
        found = [shlex.join(words) for node in nodes if (words := node.texts("command"))]
        if found:
            return tuple(shortened(line, _LONGEST_COMMAND) for line in dict.fromkeys(found))
    return ()


def doubts(result: Node) -> tuple[str, ...]:
    named = _inner(result)
    whole = [] if "" in named else _doubts(result, "")
    return (*whole, *(line for name, part in named.items() for line in _doubts(part, name)))


def _inner(result: Node) -> Mapping[str, Node]:
    """The results in a result, of frameworks or of batches."""
    if result.has("batches"):
        return {f"batch {batch}": part for batch, part in result.named_nodes("batches").items()}
    return by_framework(result)


def _described(result: Node) -> list[str]:
    workload = result.node("workload") if result.has("workload") else result
    words = [f"batch {workload.text('batch')}"] if workload.has("batch") else []
    words += [workload.text("phase")] if workload.has("phase") else []
    return words + _setup(result)


def _setup(result: Node) -> list[str]:
    if not result.has("setup"):
        return [result.text(key) for key in ("device", "precision", "layout") if result.has(key)]
    setup = result.node("setup")
    effective = setup.named_nodes("effective") if setup.has("effective") else {}
    values = {axis: effective[axis].text("value", "") for axis in _AXES_TOLD if axis in effective}
    told = [_in_words(axis, value) for axis, value in values.items() if value]
    return [words for words in told if words]


def _in_words(axis: str, value: str) -> str:
    if axis == "compile":
        return "" if value == "off" else f"compile={value}"
    if axis == "threads":
        return "1 thread" if value == "1" else f"{value} threads"
    return value.replace("@", " ") if axis == "framework" else value


def _doubts(result: Node, name: str) -> list[str]:
    if not result.has("doubts"):
        return []
    begin = f"{name}: " if name else ""
    return [harmless(f"{begin}{doubt.text('code')}: {doubt.text('detail', '')}") for doubt in result.nodes("doubts")]
