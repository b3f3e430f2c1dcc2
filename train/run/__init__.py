"""The run folder: weights, configuration, history and checkpoints."""
