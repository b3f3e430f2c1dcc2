"""Controls and pieces of pages."""
