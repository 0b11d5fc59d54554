"""The ONNX Runtime backend: networks as ONNX models, run forward on the CPU."""
