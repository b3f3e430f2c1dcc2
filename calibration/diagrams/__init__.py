"""The numbers of reliability diagrams, binned and smooth."""
