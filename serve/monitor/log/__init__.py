"""The feedback log of a server while it runs: written, followed, looked up, sent away."""
