"""What is decided with confidence: where to answer alone, what is confused with what, how large sets are."""
