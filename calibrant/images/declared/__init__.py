"""Files in which other libraries say how pictures are prepared for a network."""
