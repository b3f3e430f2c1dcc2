"""A deployed file as a Triton model repository."""
