"""The root command. A stage's own commands are imported only when one of them is called."""

from __future__ import annotations

import importlib
import os
import shlex
import sys

import click

from calibrant._version import __version__
from calibrant.commands.extras import extra_of
from calibrant.errors import CalibrantError, ConfigError, MissingExtra, did_you_mean

# name: (where the click command lives, its line in --help, the extra that it needs)
COMMANDS: dict[str, tuple[str, str, str | None]] = {
    "demo": ("calibrant.commands.demo:demo", "Run the whole path on data that needs no download.", "train"),
    "fit": ("calibrant.commands.fit.cli:fit", "From a folder of pictures to one calibrated file to serve.", "train"),
    "train": ("calibrant.train.cli:train", "Train a classifier on an image folder.", "train"),
    "search": ("calibrant.train.cli:search", "Search training settings by the validation metric.", "train"),
    "study": ("calibrant.train.study.cli:study", "Compare methods: seeds, controls, one joined table.", "train"),
    "shards": ("calibrant.train.cli:shards", "Pack a data set into Parquet or tar shards.", "train"),
    "features": ("calibrant.train.heads.cli:features", "Cache a frozen backbone's features of a folder.", "train"),
    "head": ("calibrant.train.heads.cli:head", "Train a head on cached features in seconds.", "train"),
    "sweep": ("calibrant.train.heads.cli:sweep", "Compare heads: one change at a time, grid or Optuna.", "train"),
    "predict": ("calibrant.commands.predict:predict", "Write a model's predictions for a folder of images.", None),
    "import": ("calibrant.commands.import_predictions:import_predictions", "Read predictions of other tools.", None),
    "calibrate": ("calibrant.calibration.cli.calibrate:calibrate", "Fit a calibrator on a predictions file.", None),
    "evaluate": ("calibrant.calibration.cli.evaluate:evaluate", "Accuracy and calibration, with intervals.", None),
    "labels": ("calibrant.calibration.cli.labels:labels", "How many labels a verdict needs.", None),
    "export": ("calibrant.export.cli:export", "Write one ONNX file with the calibration inside.", "train"),
    "adopt": ("calibrant.export.adoption.cli:adopt", "Take over an ONNX classifier that others exported.", "train"),
    "verify": ("calibrant.export.cli:verify", "Compare a deployed file with the run that it came from.", "train"),
    "inspect": ("calibrant.export.edit_cli:inspect", "Show what a deployed file says about itself.", None),
    "recalibrate": ("calibrant.export.edit_cli:recalibrate", "Put another calibrator into a deployed file.", None),
    "adjust": ("calibrant.export.edit_cli:adjust", "Correct a deployed file for another class prior.", None),
    "set-threshold": ("calibrant.export.edit_cli:set_threshold", "Set the confidence to abstain below.", None),
    "relabel": ("calibrant.export.edit_cli:relabel", "Rename the classes of a deployed file.", None),
    "quantize": ("calibrant.export.cli:quantize", "Make a smaller, faster file and re-fit its temperature.", "train"),
    "serve": ("calibrant.serve.cli:serve", "Serve deployed files over the Open Inference Protocol.", None),
    "compact-log": ("calibrant.commands.compact_log:compact_log", "Turn closed parts of a log into Parquet.", None),
    "bench-serve": ("calibrant.serve.callers.bench:bench_serve", "Load a server; compare with onnxruntime.", None),
    "plan": ("calibrant.serve.planning.cli:plan", "How many machines a rate of requests takes.", None),
    "tune": ("calibrant.commands.tune.cli:tune", "Find the fastest settings here that lose nothing.", "train"),
    "dashboard": ("calibrant.dashboard.cli:dashboard", "Open the reliability dashboard on your runs.", "dashboard"),
    "doctor": ("calibrant.commands.doctor:doctor", "Say what is installed, what is broken, and how to mend it.", None),
    "completion": ("calibrant.commands.completion:completion", "Print the completion script of a shell.", None),
}  # fmt: skip


# What the same line goes on with after Ctrl-C; train and fit say it themselves.
GOES_ON = ("search", "study", "features", "sweep")

# The headings of --help, and the first command under each.
HEADINGS = {
    "Start here": "demo", "Train": "train", "Judge and calibrate": "predict", "One file to deploy": "export",
    "Serve and watch": "serve", "Help": "doctor",
}  # fmt: skip


class LazyGroup(click.Group):
    """A group whose commands are import paths; listing them imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise ConfigError(f'no command "{args[0]}"', where="calibrant", fix=did_you_mean(args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = list(COMMANDS)
        starts = [names.index(first) for first in HEADINGS.values()]
        wide = max(map(len, names))
        for heading, start, end in zip(HEADINGS, starts, [*starts[1:], len(names)], strict=True):
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(wide), COMMANDS[name][1]) for name in names[start:end]])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="calibrant")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE.py",
    help="Run code of your own first: losses, models, data sets ... A file, or an entry point. Of any command.",
)
def cli(debug: bool, plugins: tuple[str, ...]) -> None:
    """Image classifiers whose confidence can be trusted, from training to production.

    \b
    First time here:    calibrant demo
    On your own images: calibrant fit DIR
                        calibrant serve runs/DIR/model.onnx
    """
    if plugins:
        from calibrant.plugins import load

        for source in plugins:
            load(source)


def main() -> None:
    """Entry point: one line for what a user can mend, a traceback for what only we can."""
    debug = "--debug" in sys.argv[1:]
    try:
        code = cli.main(args=_hoisted(sys.argv[1:]), prog_name="calibrant", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except CalibrantError as error:
        if debug:
            raise
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo(f"Stopped: interrupted. {_how_to_go_on(sys.argv[1:])}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output went away, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # no space, no permission, a file where a folder should be
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"Error: {where}{error.strerror or error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if debug or extra is None:
            raise
        command = next((a for a in sys.argv[1:] if a in COMMANDS), "this command")
        click.echo(f"Error: {MissingExtra(f'calibrant {command}', extra, error.name or '')}", err=True)
        sys.exit(2)


def _how_to_go_on(arguments: list[str]) -> str:
    command = next((word for word in arguments if word in COMMANDS), "")
    if command in GOES_ON:
        return f"The same line goes on where it stopped: {shlex.join(['calibrant', *arguments])}"
    return "What was finished before is complete and can be used."


def _hoisted(arguments: list[str]) -> list[str]:
    """--debug and --plugin belong to all commands and work wherever they stand: people add them to the line's end."""
    first, rest, words = [], [], iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--debug" or word.startswith("--plugin="):
            first.append(word)
        elif word == "--plugin":
            first += [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return first + rest
