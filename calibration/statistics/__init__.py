"""Sufficient statistics of predictions: one pass, mergeable, in bounded memory."""
