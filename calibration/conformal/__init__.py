"""Prediction sets with a coverage guarantee, and when to abstain."""
