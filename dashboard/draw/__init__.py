"""Draws what it is given; computes nothing."""
