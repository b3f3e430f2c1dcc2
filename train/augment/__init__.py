"""What training does to images, each change reproducible by position."""
