"""The words of `deepstone comm`, and one line for every mistake in them."""

from __future__ import annotations

import pytest

from deepstone.errors import UsageError
from deepstone.scaling.comm_words import parse_sizes, read_words
from deepstone.setups.transfers import TRANSFERS

KIB, MIB = 2**10, 2**20


def test_without_words_everything_is_measured_between_two_processes() -> None:
    found = read_words([])
    assert found.operations == tuple(TRANSFERS)
    assert (found.sizes[0], found.sizes[-1], len(found.sizes)) == (KIB, 64 * MIB, 9)
    assert found.lanes == ({"transport": "auto", "processes": 2},)


def test_every_transport_with_every_number_of_processes() -> None:
    found = read_words(["transport=gloo,mpi", "processes=2,4", "threads=1"])
    assert [(lane["transport"], lane["processes"]) for lane in found.lanes] == [
        ("gloo", 2),
        ("mpi", 2),
        ("gloo", 4),
        ("mpi", 4),
    ]
    assert all(lane["threads"] == 1 for lane in found.lanes)


def test_a_model_has_its_own_sizes_and_nodes_their_processes() -> None:
    found = read_words(["resnet50", "processes=2"])
    assert (found.model, found.sizes, found.operations) == ("resnet50", (), ("allreduce",))
    assert read_words(["nodes=2"]).lanes[0]["processes"] == "auto"
    assert read_words(["operation=all-reduce,p2p"]).operations == ("allreduce", "p2p")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1K", [KIB]),
        ("1K,25M", [KIB, 25 * MIB]),
        ("1K..64K", [KIB, 4 * KIB, 16 * KIB, 64 * KIB]),
        ("1K..40K", [KIB, 4 * KIB, 16 * KIB, 40 * KIB]),
        ("1K..8K*2", [KIB, 2 * KIB, 4 * KIB, 8 * KIB]),
        ("64KiB..64kib", [64 * KIB]),
        ("100..1g*1000", [100, 100_000, 100_000_000, 2**30]),
    ],
)
def test_sizes(text: str, sizes: list[int]) -> None:
    assert parse_sizes(text) == tuple(sizes)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["operation=alreduce"], "did you mean allreduce"),
        (["operation=p2p,p2p"], "twice"),
        (["size=1M..1K"], "reversed; write 1K..1M"),
        (["size=many"], "64K or 25M"),
        (["size=1K..64M*1"], "1K..64M*2"),
        (["size=1"], "from 4 bytes"),
        (["size=1T"], "to 4G"),
        (["processes=1"], "processes=2 or more"),
        (["processes=2,1"], "processes=2 or more"),
        (["transport=glo"], "gloo"),
        (["launcher=mpirn"], "mpirun"),
        (["interface=eth0,eth1"], "one value"),
        (["compression=fp16"], "leave it out"),
        (["bucket=4"], "name one"),
        (["resnet50", "size=1M"], "gradients of resnet50"),
        (["proceses=2"], "processes"),
        (["processes=2", "resnet50"], "not AXIS=VALUE"),
    ],
)
def test_mistakes(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        read_words(words)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


class TestTransfers:
    """Factors are those of nccl-tests (doc/PERFORMANCE.md); S is the size of the whole array."""

    @pytest.mark.parametrize(
        ("operation", "factor", "needed"),
        [
            ("allreduce", 1.5, 6.0),
            ("reducescatter", 0.75, 3.0),
            ("allgather", 0.75, 3.0),
            ("broadcast", 1.0, 3.0),
            ("p2p", 1.0, 1.0),
        ],
    )
    def test_of_four_processes(self, operation: str, factor: float, needed: float) -> None:
        transfer = TRANSFERS[operation]
        assert transfer.bus_factor(4) == factor
        assert transfer.needed_bytes(1000, processes=4, nodes=1) == 1000 * needed

    def test_between_two_nodes(self) -> None:
        needed = {name: each.needed_bytes(1000, processes=2, nodes=2) for name, each in TRANSFERS.items()}
        expected = {"allreduce": 2000, "p2p": 1000, "broadcast": 1000, "reducescatter": 1000, "allgather": 1000}
        assert needed == expected

    def test_each_process_has_as_many_numbers(self) -> None:
        assert TRANSFERS["allgather"].whole_bytes(1024, 3) == 1020
        assert TRANSFERS["allgather"].whole_bytes(4, 3) == 12
        assert TRANSFERS["allreduce"].whole_bytes(1026, 3) == 1024
