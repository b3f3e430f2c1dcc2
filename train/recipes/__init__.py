"""Published settings as TOML files, read by train/recipe.py."""
