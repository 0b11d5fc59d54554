"""Names by which an ONNX file of ours tells what ONNX itself has no word for."""

from __future__ import annotations

PRODUCER = "deepstone"  # also the domain of our function
WITHIN_CHANNEL_FUNCTION = "LrnWithinChannel"
WITHIN_CHANNEL = f"{PRODUCER}.{WITHIN_CHANNEL_FUNCTION}"
LOSSES = "deepstone.losses"  # a property: [{"name", "output", "weight"}] as JSON
OPSET = 17
IR_VERSION = 8
