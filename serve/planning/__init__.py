"""How many machines a rate of requests takes."""
