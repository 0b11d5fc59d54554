"""Runs steps under TensorFlow's profiler, and reads the file that it leaves."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from deepstone.backends.base import Unsupported
from deepstone.backends.traced import Traced

_STEP = "deepstone step"
_EVENTS_OF_OPERATIONS = 2  # the level of host events that holds operations, and nothing finer
_HLO = "Hlo Proto"  # what XLA calls a compiled program among a profile's metadata


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    events: list[Traced]
    programs: list[bytes]  # those that XLA compiled, as HloProto

    def windows(self) -> list[tuple[float, float]]:
        """From the end of each step to the end of the next."""
        ends_s = sorted(event.end_s for event in self.events if event.name == _STEP)
        return list(pairwise(ends_s))


def profiled(step: Callable[[], None], count: int, scratch: str) -> Profile:
    """`step` must wait for the device in the end."""
    folder = tempfile.mkdtemp(prefix="profile-", dir=scratch)
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=_EVENTS_OF_OPERATIONS, python_tracer_level=0)
    try:
        tf.profiler.experimental.start(folder, options=options)
        try:
            for _ in range(count):
                with tf.profiler.experimental.Trace(_STEP):
                    step()
        finally:
            tf.profiler.experimental.stop()
        files = list(Path(folder).rglob("*.xplane.pb"))
        if not files:
            raise Unsupported("TensorFlow's profiler left no profile")
        return _read(files[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(file: Path) -> Profile:
    space = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    events: list[Traced] = []
    programs: list[bytes] = []
    for plane in space.planes:
        names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
        stat_names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
        for metadata in plane.event_metadata.values():
            programs += [stat.bytes_value for stat in metadata.stats if stat_names[stat.metadata_id] == _HLO]
        for line in plane.lines:
            for event in line.events:
                start_s = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                events.append(
                    Traced(
                        plane=plane.name,
                        line=line.name,
                        name=names[event.metadata_id],
                        start_s=start_s,
                        end_s=start_s + event.duration_ps / 1e12,
                        stats={stat_names[stat.metadata_id]: _value(stat, stat_names) for stat in event.stats},
                    )
                )
    return Profile(events=events, programs=programs)


def _value(stat: Any, names: dict[int, str]) -> Any:
    kind = stat.WhichOneof("value")
    return names[stat.ref_value] if kind == "ref_value" else getattr(stat, kind)
