"""Offline prediction, local and on Ray."""
