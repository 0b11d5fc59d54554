"""Models in the forms of other programs: ONNX files, and frameworks' own modules."""
