"""The Open Inference Protocol without a transport: requests, answers, tensors, errors."""
