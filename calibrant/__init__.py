"""Calibrant: image classifiers whose confidence can be trusted, from training to production."""

from __future__ import annotations

from pathlib import Path

from calibrant._version import __version__

__all__ = ["__version__"]

# In a checkout the stage folders (train/, export/, ...) lie beside this one and not in it. Without this line the bare
# calibrant/ folder would shadow the installed package whenever the checkout is the working directory.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "calibration" / "__init__.py").is_file():
    __path__.append(str(_root))
