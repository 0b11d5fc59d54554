"""What several processes must show to have trained as one process does."""

from __future__ import annotations

import pytest

from deepstone.absent import Absent
from deepstone.checks.parallel import TOLERANCE
from deepstone.results.sameness import SchemeSameness


def assert_as_one_process(found: SchemeSameness) -> None:
    assert found.ok, found.why_not()
    assert found.replicas_equal
    for distance in (found.gradient, found.update):
        assert not isinstance(distance, Absent)
        assert distance.relative_error <= TOLERANCE / 10
    assert found.loss == pytest.approx(found.loss_of_one_process, rel=1e-12)
