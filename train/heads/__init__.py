"""Heads on frozen features: cache features once, train heads in seconds, compare one change at a time, fuse the winner.

views, backbone, cache, features   images to a folder of Parquet shards
modules, mixing, auxiliary         what a head can be and what can be done to its inputs
config, split, trainer, posthoc    one head: from a cache and a HeadConfig to probabilities and metrics
run, fused                         the run folder of a head, and backbone + normalisation + head as one network
sweep, table                       many heads, several seeds, deltas against a baseline
"""
