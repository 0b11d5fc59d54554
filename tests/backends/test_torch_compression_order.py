"""PowerSGD sends several times for a bucket: buckets take turns, else one gets the parts of another."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deepstone.backends.torch import compression


def one_more(arrived: Any) -> Any:
    return arrived.value() + 1


def test_a_bucket_waits_until_the_one_before_is_done():
    begun: list[str] = []
    arrivals: dict[str, Any] = {name: torch.futures.Future() for name in ("first", "second")}

    def reduce(bucket: str) -> Any:
        begun.append(bucket)
        return arrivals[bucket].then(one_more)

    take = compression.InTurns(reduce)
    first, second = take("first"), take("second")
    arrivals["second"].set_result(torch.ones(1))
    assert not second.done()
    assert begun in ([], ["first"])
    arrivals["first"].set_result(torch.zeros(1))
    assert second.wait().item() == 2
    assert first.wait().item() == 1
    assert begun == ["first", "second"]


def test_what_fails_is_raised_where_the_bucket_is_waited_for():
    def fail(bucket: object) -> Any:
        raise RuntimeError("the peer is gone")

    done = compression.InTurns(fail)("bucket")
    with pytest.raises(RuntimeError, match="the peer is gone"):
        done.wait()
