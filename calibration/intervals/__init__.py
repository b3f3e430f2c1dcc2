"""95 % intervals and null values of everything that is measured."""
