"""What somebody else's ONNX file is: its input, its output and what kind, where its logits are, what it says."""
