"""The errors that a user can cause, each with what is wrong, where, and how to mend it.

CalibrantError
 +- ConfigError     a command line, TOML file or option that means nothing here
 +- DataError       images, labels or arrays that cannot be used
 +- FormatError     a file that is not what it should be: foreign, damaged, or from a newer Calibrant
 +- ModelError      a network that cannot be built, trained, exported or served as asked
 +- MissingExtra    an optional dependency that the command needs
 +- CheckFailed     a comparison that ran and came out wrong (exit code 1, all others 2)

Mistakes of a programmer stay ValueError and TypeError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class CalibrantError(Exception):
    """`where: what; fix` in one line; the command line shows it without a traceback."""

    exit_code = 2

    def __init__(self, what: str, *, where: str | Path | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        text = f"{where}: {what}" if where is not None else what
        super().__init__(f"{text}; {fix}" if fix else text)


class ConfigError(CalibrantError):
    """An option, key or value that is unknown or out of range."""


class DataError(CalibrantError):
    """Images, labels or arrays that cannot be used."""


class FormatError(CalibrantError):
    """A file that is foreign, damaged or newer than this version reads."""


class ModelError(CalibrantError):
    """A network that cannot be built, trained, exported or served as asked."""


class MissingExtra(CalibrantError):
    """An optional dependency that this command needs is not installed."""

    def __init__(self, command: str, extra: str, module: str) -> None:
        super().__init__(
            f"{command} needs {module}, which is not installed", fix=f"run: pip install 'calibrant[{extra}]'"
        )


class CheckFailed(CalibrantError):
    """A comparison ran and came out wrong."""

    exit_code = 1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean "x"?`, or the list of what is known where nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f'did you mean "{near[0]}"?'
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"known are: {shown}"
