"""Options on a GPU, on a live one and in records kept from one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gpu_options import DROPPABLE, OPTIONS, Option, fault_of

from deepstone.results.codec import decode_checked_record
from deepstone.results.record import Record
from deepstone.setups.effective import contradiction

RESULTS = Path(__file__).resolve().parents[2] / "results" / "h200"
RECORDS = [
    decode_checked_record(line)
    for name in ("runs", "jax")
    for line in (RESULTS / f"{name}.jsonl").read_bytes().splitlines()
]

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_it_is_seen_to_be_done_or_said_to_be_unknown(option: Option) -> None:
    assert fault_of(option, dropped=False) == ""


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("option", DROPPABLE, ids=str)
def test_dropped_it_is_unsupported(option: Option) -> None:
    assert fault_of(option, dropped=True) == ""


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.id)
def test_records_from_a_gpu_contradict_nothing_that_was_asked(record: Record) -> None:
    assert contradiction(record.setup.requested, record.setup.effective) is None


@pytest.mark.parametrize("record", RECORDS[:3], ids=lambda record: record.id)
@pytest.mark.parametrize(
    ("axis", "asked"), [("device", "cpu"), ("precision", "fp64"), ("layout", "other"), ("algorithm", "other")]
)
def test_the_same_records_would_have_been_refused_for_another_request(record: Record, axis: str, asked: str) -> None:
    setup = record.setup
    found = contradiction({**setup.requested, axis: asked}, setup.effective)
    assert found == f"asked for {axis}={asked}, but got {setup.effective[axis].value}"
