"""Every axis is searched over values that it accepts, or says why it is not."""

from __future__ import annotations

from itertools import product

import pytest

from deepstone.setups.axes import AXES, ISA_ORDER
from deepstone.setups.tuning import Facts, NotTuned, Tuning

PLACES = [
    Facts(
        device=device,
        cores=cores,
        gpus=gpus,
        frameworks=("torch", "jax"),
        isa=ISA_ORDER[:8],
        batch=batch,
        has_batch_norm=norm,
        saves_memory=True,
    )
    for device, cores, gpus in (("cpu", 1, 0), ("cpu", 2, 0), ("cpu", 12, 0), ("gpu", 16, 1), ("gpu", 16, 4))
    for batch, norm in product((1, 32, 96), (True, False))
]


@pytest.mark.parametrize("name", AXES)
def test_an_axis_is_tunable_or_says_why_not(name: str) -> None:
    tuning = AXES[name].tuning
    if isinstance(tuning, NotTuned):
        assert tuning.why
        return
    assert set(tuning.rank) == {"cpu", "gpu"}
    for facts in PLACES:
        values = tuning.values(facts)
        assert len(set(values)) == len(values)
        for value in values:
            assert AXES[name].parse(str(value)) == value
            assert value != "auto"
            assert tuning.alters(value, facts) in ("order", "rounding", "state", "batch")


def test_what_training_is_depends_on_batch_norm() -> None:
    accumulate, precision = AXES["accumulate"].tuning, AXES["precision"].tuning
    assert isinstance(accumulate, Tuning)
    assert isinstance(precision, Tuning)
    norm, plain = (Facts(device="cpu", has_batch_norm=has) for has in (True, False))
    assert (accumulate.alters(2, norm), accumulate.alters(2, plain)) == ("batch", "order")
    assert [precision.alters(value, plain) for value in ("fp32", "bf16-mixed", "bf16")] == [
        "order",
        "rounding",
        "state",
    ]


def test_parts_of_a_batch_are_whole() -> None:
    accumulate = AXES["accumulate"].tuning
    assert isinstance(accumulate, Tuning)
    assert accumulate.values(Facts(device="cpu", batch=12)) == (2, 4)
    assert accumulate.values(Facts(device="cpu", batch=7)) == ()
