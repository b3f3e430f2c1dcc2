"""Smaller, faster files, and what they cost."""
