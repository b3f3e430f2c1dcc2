"""Maps of each class's probability by itself, one class against the rest, with a temperature beside them."""
