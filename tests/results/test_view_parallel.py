"""What people read of a pipeline: its stages, how long they wait, and the memory of each process."""

from __future__ import annotations

import msgspec
from factory import typed_record

from deepstone.absent import Absent
from deepstone.results.parallel import Bubbles, Launcher, Parallel, RankFacts, StageFacts
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.results.view_parallel import memory_words, pipeline_words

NOT_HERE = Absent("not measured here")
MIB = 2**20


def quantity(median: float) -> Quantity:
    return Quantity.of(median=median, low=0.9 * median, high=1.1 * median, n=9)


BUBBLES = Bubbles(
    share=quantity(0.4),
    ranks=[quantity(0.4)] * 4,
    ideal_share=0.2,
    replayed_share=quantity(0.3),
    exposed_s=quantity(0.01),
    traced_step_s=quantity(0.1),
    method="timestamps",
)


def record_of(stages: int, pipelines: int, bubbles: Bubbles | Absent = BUBBLES) -> Record:
    shares = {0: 0.6, 1: 0.4}
    parallel = Parallel(
        world=stages * pipelines,
        scheme="hybrid" if pipelines > 1 else "pipeline",
        nodes=1,
        local_batch=8,
        launcher=Launcher(name="local", version="1", argv=[]),
        ranks=[
            RankFacts(
                rank=rank,
                node=0,
                device="cpu",
                threads=1,
                cpus="0",
                host_peak_bytes=400 * MIB,
                step_bytes=(rank + 1) * MIB,
                predicted_bytes=MIB,
            )
            for rank in range(stages * pipelines)
        ],
        buckets=NOT_HERE,
        communication=NOT_HERE,
        stages=[
            StageFacts(
                rank=rank, stage=rank % stages, layers=3, first="a", last="b", share=shares[rank % stages], method="m"
            )
            for rank in range(stages * pipelines)
        ],
        bubbles=bubbles,
        rates=NOT_HERE,
    )
    return msgspec.structs.replace(typed_record(), parallel=parallel)


def test_stages_are_told_once_however_many_pipelines_there_are():
    for pipelines in (1, 2):
        assert pipeline_words(record_of(2, pipelines)).startswith("stages of 60 % + 40 % of the cost · wait 40 %")


def test_what_waits_for_what():
    words = pipeline_words(record_of(2, 1))
    assert "20 % with equal stages" in words
    assert "30 % with these and none" in words
    assert "communication adds 10.0 ms" in words


def test_what_was_not_traced_is_told_with_the_reason():
    assert "not measured here" in pipeline_words(record_of(2, 1, NOT_HERE))


def test_the_memory_of_many_ranks_is_cut_short():
    assert memory_words(record_of(2, 1)) == "1.00 MiB (1.00 MiB predicted) · 2.00 MiB (1.00 MiB predicted)"
    assert memory_words(record_of(2, 8)).endswith("and 8 more")


def test_one_process_has_neither():
    assert pipeline_words(typed_record()) == memory_words(typed_record()) == ""
