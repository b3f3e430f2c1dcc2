"""The files that cross from one stage to another: predictions, feedback log, model card, deployed ONNX file."""
