"""What XLA's threads did when: an instruction runs where it is called, and where the pool works on what it hands over.

    thread 1   ▓▓conv.1▓▓ ▓▓▓▓▓dot.2▓▓▓▓▓       conv.1 hands work to the pool and goes on
                  ┆ Record 7
    thread 2          ┆StartRegion 7 ▓▓▓▓▓▓ StopRegion┆      is conv.1, too
    conv.1        ▓▓▓▓  ▓▓▓▓▓▓▓▓▓▓▓▓▓           the time between its call and its end is not: it may wait for a thread

Inside one another the innermost counts; inside the executor of instructions, and outside all of them, it is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deepstone.backends.traced import Traced

_RECORD, _START, _STOP = (f"ThreadpoolListener::{what}" for what in ("Record", "StartRegion", "StopRegion"))
_EXECUTOR = "ThunkExecutor::Execute"
_END, _MARK, _BEGIN = range(3)  # of what happens at one moment, the end of something comes first


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A time in which a thread worked for one instruction, which may have several of them."""

    event: Traced  # the instruction's call
    line: str
    start_s: float
    end_s: float


class _Line:
    """What one thread is at: the innermost of what has begun and not ended, and since when."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[tuple[object, Traced | None]] = []
        self._since_s = 0.0

    @property
    def current(self) -> Traced | None:
        return self._open[-1][1] if self._open else None

    def begin(self, key: object, owner: Traced | None, moment_s: float) -> Iterator[Piece]:
        yield from self._until(moment_s)
        self._open.append((key, owner))

    def end(self, key: object, moment_s: float) -> Iterator[Piece]:
        yield from self._until(moment_s)
        self._open = [(other, owner) for other, owner in self._open if other != key]

    def _until(self, moment_s: float) -> Iterator[Piece]:
        if self.current is not None and moment_s > self._since_s:
            yield Piece(event=self.current, line=self._name, start_s=self._since_s, end_s=moment_s)
        self._since_s = moment_s


def pieces(events: Iterable[Traced]) -> list[Piece]:
    """From all events of a profile of the CPU."""
    found: list[Piece] = []
    lines: dict[tuple[str, str], _Line] = {}
    handed_over: dict[object, Traced | None] = {}  # by the number of the record
    for moment_s, _, event in sorted(_moments(events), key=lambda moment: moment[:2]):
        line = lines.setdefault((event.plane, event.line), _Line(event.line))
        if event.name == _RECORD:
            handed_over[event.stats.get("_p")] = line.current
        elif event.name == _START:
            found += line.begin(_START, handed_over.pop(event.stats.get("_c"), None), moment_s)
        elif event.name == _STOP:
            found += line.end(_START, moment_s)
        elif moment_s == event.start_s:
            found += line.begin(id(event), None if event.name == _EXECUTOR else event, moment_s)
        else:
            found += line.end(id(event), moment_s)
    return found


def _moments(events: Iterable[Traced]) -> Iterator[tuple[float, int, Traced]]:
    for event in events:
        if event.name in (_RECORD, _START, _STOP):
            yield event.start_s, {_RECORD: _MARK, _START: _BEGIN, _STOP: _END}[event.name], event
        elif (event.name == _EXECUTOR or "hlo_op" in event.stats) and event.end_s > event.start_s:
            yield event.start_s, _BEGIN, event
            yield event.end_s, _END, event
