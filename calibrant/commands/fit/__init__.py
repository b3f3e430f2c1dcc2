"""`calibrant fit`: from a folder of pictures to one calibrated, proven file. Composes the stages; computes nothing.

cli      options and the order of the steps
project  the folder, what is done in it, and how it is gone on with
plan     settings, presets and what the time allows
data     the data check and which rows train, judge and are laid aside
heads    features, several heads, the choice
tuning   fine-tuning that has to win against the head
deploy   temperature, one file, its proof
judge    the verdict on rows that decided nothing
page     the report
"""
