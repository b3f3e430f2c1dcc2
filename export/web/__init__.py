"""A deployed file as a folder for browsers."""
