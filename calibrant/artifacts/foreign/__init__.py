"""Predictions that somebody else wrote: a file per format, and what is the same for all of them.

`formats` picks the reader, which gives `columns`; `roles` says which of them is what; `precision` how finely the values
are written; `kinds` what they are (logits, probabilities, percent); `labels` what the labels mean; `read` puts these
together into predictions. `outcome` tells whether one class excludes the others.
"""
