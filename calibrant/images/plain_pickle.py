"""The data in a pickle, read without executing it: numbers, text, lists, tables, and NumPy arrays of bytes.

A pickle is a program that may call anything by name. Here its instructions are followed only as far as they describe
data; a name is compared with the few that stand for an array, and is never looked up. What else occurs is refused.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError

MAX_BYTES = 1 << 30
_VALUES = {
    "INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_SIMPLE = {"PROTO", "FRAME", "STOP"}
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """Something that the program would have imported."""

    name: str


@dataclass
class _Made:
    """What calling a name would have made."""

    of: str
    arguments: tuple[Any, ...]
    state: tuple[Any, ...] = field(default=())


def read_pickle(file: Path) -> Any:
    """What is in the file. Text of Python 2, which has no bytes, becomes text."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise DataError(f"is larger than {MAX_BYTES:,} bytes", where=file)
        return _plain(_run(file.read_bytes()))
    except FileNotFoundError:
        raise DataError("no such file", where=file) from None
    except DataError as error:
        raise DataError(error.what, where=file, fix=error.fix) from None
    except Exception as error:  # damaged bytes can fail anywhere in pickletools
        raise DataError(f"cannot be read as pickled data ({type(error).__name__}: {error})", where=file) from None


def _run(content: bytes) -> Any:
    """The stack machine of pickle, as far as data need it."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for code, found, _ in pickletools.genops(content):
        name, argument = code.name, cast(Any, found)
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument)])
        elif name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append({"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}[name]())
        elif name in ("LIST", "TUPLE", "DICT"):
            items = _since_mark(stack)
            made = {"LIST": list, "TUPLE": tuple}.get(name, _table)
            stack.append(made(items))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else _since_mark(stack)
            stack[-1].extend(items) if isinstance(stack[-1], list) else _refuse(name)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else _since_mark(stack)
            stack[-1].update(_table(items)) if isinstance(stack[-1], dict) else _refuse(name)
        elif name == "GLOBAL":
            stack.append(_Name(str(argument)))
        elif name == "STACK_GLOBAL":
            stack[-2:] = [_Name(f"{stack[-2]} {stack[-1]}")]
        elif name == "REDUCE":
            called, arguments = stack[-2], stack[-1]
            stack[-2:] = [_called(called, arguments)]
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], _Made) or not isinstance(state, tuple):
                _refuse(name)
            stack[-1].state = state
        elif name not in _SIMPLE:
            _refuse(name)
    return stack.pop()


def _since_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1 - next(i for i, v in enumerate(reversed(stack)) if v is _MARK)
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _table(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _called(called: Any, arguments: Any) -> Any:
    """Names that stand for an array, its type, or bytes; no name is ever imported."""
    if isinstance(called, _Name) and isinstance(arguments, tuple):
        module, _, name = called.name.partition(" ")
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _Made("array", ())
        if module == "numpy" and name == "dtype":
            return _Made("dtype", arguments)
        if (module, name) == ("_codecs", "encode") and arguments[1:] == ("latin1",):
            return str(arguments[0]).encode("latin-1")
    raise DataError(
        "holds more than data: it would call " + (called.name if isinstance(called, _Name) else "something")
    )


def _refuse(name: str) -> None:
    raise DataError(f"holds more than data: the instruction {name}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {(k.decode("latin-1") if isinstance(k, bytes) else k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, _Made):
        return _array(value)
    if isinstance(value, _Name) or value is _MARK:
        raise DataError("holds more than data, or less")
    return value


def _array(made: _Made) -> NDArray[np.uint8]:
    """State of an array: (version, shape, type, Fortran order, bytes)."""
    if made.of != "array" or len(made.state) != 5:
        raise DataError("holds an array that is not one of numbers")
    _, shape, kind, fortran, content = made.state
    if not isinstance(kind, _Made) or kind.of != "dtype" or kind.arguments[:1] != ("u1",):
        raise DataError("holds an array of other numbers than bytes")
    if isinstance(content, str):
        content = content.encode("latin-1")
    array = np.frombuffer(content, np.uint8)
    return array.reshape(shape, order="F" if fortran else "C")
