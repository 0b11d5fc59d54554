"""Models in other formats: ONNX files, and frameworks' own modules."""
