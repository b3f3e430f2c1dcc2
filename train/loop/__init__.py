"""The training loop: what it is made of, one step after another, and where it stands."""
