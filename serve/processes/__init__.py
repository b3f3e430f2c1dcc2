"""Server processes: their life, several on one address, Ray."""
