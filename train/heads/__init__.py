"""Heads on frozen features: cache features once, train heads in seconds, compare one change at a time, fuse the winner.

features/   images to a folder of Parquet shards
training/   what a head can be, what can be done to its inputs, and how it is trained
config, split, posthoc, scores, experiment   one head: from a cache and a HeadConfig to probabilities and metrics
run, fused  the run folder of a head, and backbone + normalisation + head as one network
sweep/      many heads, several seeds, deltas against a baseline
"""
