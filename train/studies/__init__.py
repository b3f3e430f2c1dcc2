"""The studies that come with the package, one TOML file each; `calibrant study --list` shows them."""
