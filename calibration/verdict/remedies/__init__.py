"""What would help, tried before it is offered."""
