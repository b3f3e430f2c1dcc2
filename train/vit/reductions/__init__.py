"""One token reduction per file."""
