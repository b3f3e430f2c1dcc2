"""Which model can be trusted: a card for each thing that can be deployed, and a comparison of a few."""
