"""From confidence to a decision: from which confidence on the model answers alone, and what it then gets wrong."""
