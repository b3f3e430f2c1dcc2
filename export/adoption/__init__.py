"""Takes a classifier from somebody else's ONNX file over: finds its head, wraps it in pixels and the tail, proves it."""
