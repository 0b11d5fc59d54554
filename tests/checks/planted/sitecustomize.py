"""In a torch worker before anything else: plants the error that DEEPSTONE_TEST_PLANT names into the lowering.

The code under test is the real one; only one operation of it is made wrong, as a careless port would.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "planting"))

from planting import change_imported

LOWERING = "deepstone.backends.torch.lower"
ERROR = os.environ.get("DEEPSTONE_TEST_PLANT", "")


def plant(module):
    import torch
    from torch.nn import functional as F

    lowering, ops = module.Lowering, module.ops
    lower = lowering._lower

    def changed(**values):
        """The same layer with other attributes."""
        from dataclasses import replace

        return lambda layer: replace(layer, op=replace(layer.op, **{k: v(layer.op) for k, v in values.items()}))

    def shifted(x):
        return F.pad(x, (1, -1, 1, -1))

    def without_bias(self, layer, node):
        """The bias is there, but never added."""
        return self._fx.call_function(torch.sub, (node, self._fx.call_function(of_channels, (bias(self, layer), node))))

    def bias(self, layer):
        return self._fx.get_attr(f"{module.scope_name(layer.name)}.bias")

    def of_channels(values, like):
        return values.reshape(1, -1, 1, 1) if like.dim() == 4 else values

    def off_in_fp32(x):
        return x * 2 if x.dtype == torch.float32 else x

    def wrong(self, layer):
        op = layer.op
        whole = len(self._layers) > 1
        if ERROR == "padding" and isinstance(op, ops.Conv) and any(op.pad):
            self._nodes[layer.inputs[0]] = self._fx.call_function(shifted, (self._nodes[layer.inputs[0]],))
        elif ERROR == "lrn scale" and isinstance(op, ops.Lrn):
            layer = changed(alpha=lambda op: op.alpha * op.size)(layer)
        elif ERROR == "epsilon" and isinstance(op, ops.BatchNorm):
            layer = changed(epsilon=lambda op: 1e-3)(layer)
        elif ERROR == "flatten order" and isinstance(op, ops.Flatten):
            return self._fx.call_function(lambda x: x.permute(0, 2, 3, 1).flatten(1), (self._nodes[layer.inputs[0]],))
        elif ERROR == "dropped bias" and isinstance(op, ops.Conv) and op.bias:
            return without_bias(self, layer, lower(self, layer))
        elif (
            whole and layer.name == "conv1" and (ERROR == "whole" or (ERROR == "seed 0" and torch.initial_seed() == 0))
        ):
            return self._fx.call_function(off_in_fp32, (lower(self, layer),))
        return lower(self, layer)

    for name, function in (("shifted", shifted), ("of_channels", of_channels), ("off_in_fp32", off_in_fp32)):
        setattr(module, name, function)
    lowering._lower = wrong


if ERROR:
    change_imported({LOWERING: plant})
