"""`calibrant serve --config FILE.toml`: every option under its own name, and what is too special for an option.

    models = ["birds=birds.onnx"]      # paths are relative to the file
    port = 8000
    workers = 4
    canary = ["birds@2=0.1"]

    [limits]                           # fields of serve.limits.Limits
    peer_connections = 1024

    [watch]                            # fields of serve.monitor.config.MonitorConfig
    window = 5000

    [canary_rules]                     # fields of calibration.monitoring.canary_rules.CanaryRules
    ece_gain = 0.03

What stands on the command line comes before what stands in the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from calibrant.calibration.monitoring.canary_rules import CanaryRules
from calibrant.config import build, read_toml
from calibrant.errors import ConfigError, did_you_mean
from calibrant.remote.storage import is_address
from calibrant.serve.limits import Limits
from calibrant.serve.monitor.config import MonitorConfig

NOT_IN_A_FILE = ("config", "check", "help")
TABLES: dict[str, type[Any]] = {"limits": Limits, "watch": MonitorConfig, "canary_rules": CanaryRules}
# Fields of the tables that are options, and are said there only.
OPTIONS = {"max_body": "max_body (MiB)", "max_wait": "max_wait", "sample": "sample", "keep_days": "keep_days",
           "keep_gib": "keep_gib", "segment_bytes": "segment_mib", "segment_hours": "segment_hours",
           "half": "log_float16", "top": "log_top", "features": "feature_drift"}  # fmt: skip


@dataclass(frozen=True)
class ConfigFile:
    options: dict[str, Any]  # by the names of click's parameters
    tables: dict[str, dict[str, Any]]

    def fields(self, table: str) -> dict[str, Any]:
        return self.tables.get(table, {})


def read_config_file(path: Path, parameters: Iterable[click.Parameter]) -> ConfigFile:
    """Refuses what is no option; the values are checked as those of the command line are."""
    known = _by_option(parameters)
    options: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for key, value in read_toml(path).items():
        name = key.replace("-", "_")
        if name in TABLES:
            tables[name] = _table(name, value, path)
        elif name not in known:
            words = sorted([*known, *TABLES])
            raise ConfigError(f'no option "{key}"', where=path, fix=did_you_mean(name, words))
        else:
            parameter = known[name]
            options[str(parameter.name)] = _value(parameter, key, value, path)
    return ConfigFile(options, tables)


def _by_option(parameters: Iterable[click.Parameter]) -> dict[str, click.Parameter]:
    """By the long name on the command line (`reload`), and by the argument's."""
    found = {}
    for parameter in parameters:
        words = [word[2:] for word in parameter.opts if word.startswith("--")] or [str(parameter.name)]
        if words[0] not in NOT_IN_A_FILE:
            found[words[0].replace("-", "_")] = parameter
    return found


def _table(name: str, value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"expected a table [{name}]", where=path)
    for key in value:
        if key in OPTIONS:
            raise ConfigError(f"{key} is an option: write it above the tables as {OPTIONS[key]}", where=path)
    given = build(TABLES[name], value, where=f"{path} [{name}]")
    return {f.name: getattr(given, f.name) for f in dataclasses.fields(given) if f.name in value}


def _value(parameter: click.Parameter, key: str, value: Any, path: Path) -> Any:
    several = parameter.multiple if isinstance(parameter, click.Option) else parameter.nargs == -1
    if several != isinstance(value, list):
        raise ConfigError(f"{key} is {'a list' if several else 'one value'}, got {value!r}", where=path)
    flag = isinstance(parameter, click.Option) and parameter.is_flag
    if flag != isinstance(value, bool):
        raise ConfigError(f"{key} is {'true or false' if flag else 'no true or false'}, got {value!r}", where=path)
    for each in value if several else (value,):
        _refuse_kind(parameter, key, each, path)
    if parameter.name == "models":
        return [_model(str(text), path.parent) for text in value]
    return str(path.parent / value) if isinstance(parameter.type, click.Path) else value


def _refuse_kind(parameter: click.Parameter, key: str, value: Any, path: Path) -> None:
    """What click would turn into another kind, or refuse without the name of the file. A number may be text, as Helm
    makes it of `--set`."""
    whole = isinstance(parameter.type, click.types.IntParamType)
    number = whole or isinstance(parameter.type, click.types.FloatParamType)
    fits = isinstance(value, str | int | (str if whole else float)) if number else isinstance(value, str | bool)
    if not fits:
        what = "a whole number" if whole else "a number" if number else "text"
        raise ConfigError(f"{key} is {what}, got {value!r}", where=path)
    if number:
        try:
            parameter.type.convert(value, parameter, None)
        except click.BadParameter as error:
            raise ConfigError(f"{key}: {error.message}", where=path) from None


def _model(text: str, folder: Path) -> str:
    """[NAME[@VERSION]=]PATH with the path seen from the file."""
    if is_address(text):
        return text
    name, equals, where = text.rpartition("=")
    return str(folder / text) if (folder / text).exists() or not equals else f"{name}={folder / where}"
