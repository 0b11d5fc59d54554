"""The fastest setup of every model in a store, and how sure that is: python examples/notebook.py [STORE]"""

import sys

import deepstone

results = deepstone.open(sys.argv[1] if len(sys.argv) > 1 else None)
frame = results.to_pandas(outcome="ok")
if frame.empty:
    sys.exit("no run went well yet; measure one with `deepstone run cifarnet`")

best = frame.loc[frame.groupby(["model", "phase"])["samples_per_s"].idxmax()]
columns = ["model", "phase", "batch", "framework", "effective_layout", "samples_per_s", "samples_per_s_low", "doubts"]
print(best[columns].to_string(index=False))  # noqa: T201

# The interval as a share of the median: where it is wide, measure again before you believe an order.
spread = (frame["samples_per_s_high"] - frame["samples_per_s_low"]) / frame["samples_per_s"]
print(f"widest interval: {spread.max():.1%} of the median, over {len(frame)} runs")  # noqa: T201
