"""Studies: methods x data x networks x seeds, the controls that a comparison needs, one table of all of it."""
