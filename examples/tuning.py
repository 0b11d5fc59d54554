"""Find the fastest setup of a model from Python, and look at the search: python examples/tuning.py [MODEL] [BUDGET]

For a first try of a minute: python examples/tuning.py cifarnet 60s
"""

import sys

import deepstone
from deepstone.absent import Absent

model = sys.argv[1] if len(sys.argv) > 1 else "alexnet-owt"
budget = sys.argv[2] if len(sys.argv) > 2 else "5m"

# Axes are keywords: one value fixes an axis, a list is searched over; all others are searched over what is here.
answer = deepstone.tune(model, budget=budget, batch=32, precision=["auto", "bf16-mixed"])

if isinstance(answer.ratio, Absent):
    undecided = answer.found.answer == "not separable"
    sys.exit(f"{'nothing is decided' if undecided else 'stay with the default'}: {answer.ratio.reason}")
ratio = answer.ratio
print(f"{ratio.median:.2f}x ({ratio.low:.2f} – {ratio.high:.2f}) the default: {dict(answer.setup)}")  # noqa: T201
if answer.found.given_up:
    print(f"given up: {answer.found.given_up}")  # noqa: T201

# Every launch of the search. answer.looks() has them as a data frame, if pandas is installed.
rates: dict[str, list[float]] = {}
for look in answer.found.looks:
    if not isinstance(look.samples_per_s, Absent):
        rates.setdefault(look.kind, []).append(look.samples_per_s)
for kind, measured in rates.items():
    print(f"{kind}: {len(measured)} launches, at most {max(measured):.1f} images/s")  # noqa: T201

print(f"the page: {answer.page('tune.html')}")  # noqa: T201
print(answer.code().splitlines()[0])  # noqa: T201
