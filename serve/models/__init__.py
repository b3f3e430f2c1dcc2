"""The models that a server holds: repository, batching, reload."""
