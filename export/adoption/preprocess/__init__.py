"""How pictures are prepared for a foreign network: as somebody declares it, and as labelled pictures show it."""
