"""One head from a matrix of features: what it can be, what its inputs go through, how it is trained or solved."""
