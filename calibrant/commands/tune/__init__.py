"""`calibrant tune`: the settings and the precision with which a file is served best on this machine."""
