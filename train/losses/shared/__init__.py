"""What the losses stand on: the base class, targets, rows, checks, precision, several processes, memories."""
