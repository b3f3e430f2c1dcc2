"""calibrant train."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from calibrant.remote.ray_session import RAY_ADDRESS, joined, refuse_address
from calibrant.train.known_words import LOSS, MODEL, RECIPE, REDUCTION

if TYPE_CHECKING:
    from calibrant.train.loop.epochs import Epoch

_PATH = click.Path(path_type=Path)


def _rates(_: click.Context, parameter: click.Parameter, text: str | None) -> float | list[float] | None:
    """One number, or one per stage."""
    from calibrant.errors import ConfigError

    if text is None:
        return None
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f'"{text}" is not a number, or numbers like 0.7,0.5,0.25', where="--keep-rate") from None
    return rates[0] if len(rates) == 1 else rates


def _sides(_: click.Context, parameter: click.Parameter, text: str | None) -> int | list[int] | None:
    """One number, or height x width."""
    from calibrant.errors import ConfigError

    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.strip().isdigit() for part in parts):
        raise ConfigError(f'"{text}" is not a size', where="--image-size", fix="write 224, or height x width: 160x320")
    numbers = [int(part) for part in parts]
    return numbers[0] if len(numbers) == 1 else numbers


def _workers(_: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """The fewest and the most."""
    from calibrant.errors import ConfigError

    if text is None:
        return None
    numbers = text.split(":")
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise ConfigError(f'"{text}" is not a number, or two like 2:4', where="--workers")
    return (1, int(text)) if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


@click.command(short_help="Train a classifier on an image folder.")
@click.argument("config", required=False, type=_PATH)
@click.option(
    "--recipe",
    type=RECIPE,
    help="Start from the settings of a paper, e.g. fedlas-ls/cub or ufg/clca (docs/training.md).",
)
@click.option(
    "--data", type=_PATH, help="Folder of DIR/CLASS/*.jpg or DIR/{train,val,test}/CLASS/*.jpg, list.csv, shards ..."
)
@click.option("--groups", help="CSV or Parquet: column whose values must not be divided between splits.")
@click.option("--model", type=MODEL, help="Any timm classifier, e.g. resnet50 or vit_base_patch16_224.")
@click.option(
    "--pretrained/--from-scratch",
    default=None,
    help="Start from timm's pretrained weights. Default: where they are in the cache or the hub answers.",
)
@click.option("--weights", type=_PATH, help="Start from a local checkpoint of the same model.")
@click.option(
    "--image-size", callback=_sides, metavar="N|HxW", help="Pixels a side, or 160x320. Default: the model's own."
)
@click.option("--loss", type=LOSS, help="ce, vace, fedlas-ls, mbls, ... (default ce).")
@click.option("--train-last", type=int, metavar="N", help="Only the last N stages and the classifier learn.")
@click.option("--token-reduction", type=REDUCTION, help="Vision transformers: evit, topk, tome, dynamicvit, ats ...")
@click.option(
    "--keep-rate", callback=_rates, metavar="RATE", help="Share of tokens that each stage keeps: 0.25, or 0.7,0.5,0.25."
)
@click.option("--clca", is_flag=True, help="With --token-reduction: cross-layer aggregation head and cache.")
@click.option(
    "--epochs",
    type=int,
    help="Passes over the training images. Default: 30; on pretrained weights 4 or more, 100 updates.",
)
@click.option("--batch-size", type=int, help="Images a step, over all processes. Default: 32.")
@click.option("--lr", type=float, help="Learning rate. Default: 1e-3 from scratch, 1e-4 pretrained (adamw).")
@click.option("--out", type=_PATH, help="Run folder to write. Default: runs/train.")
@click.option("--seed", type=int, help="Same seed, same run. Default: 1.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting, e.g. loss.lam=1.0.")
@click.option("--resume", is_flag=True, help="Go on where the run in --out stopped.")
@click.option("--overwrite", is_flag=True, help="Throw away a run that is in --out already.")
@click.option("--on-bad-image", type=click.Choice(["fail", "skip"]), help="What to do with an unreadable image.")
@click.option("--device", help="auto, cpu, cuda, cuda:1 ...")
@click.option(
    "--sync-bn", is_flag=True, default=None, help="Under torchrun: batch norm over the rows of all processes."
)
@click.option("--engine", type=click.Choice(["process", "ray"]), default="process", show_default=True)
@RAY_ADDRESS
@click.option(
    "--workers",
    callback=_workers,
    metavar="N|MIN:N",
    help="With --engine ray: processes, and how few will do where some are lost (1). Default: one a GPU or machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def train(config: Path | None, settings: tuple[str, ...], **options: Any) -> None:
    """Train an image classifier and write a run folder: weights, predictions, metrics, a checkpoint to resume from.

    CONFIG is a TOML file with the tables data, model, loss, optimizer, schedule, augment and engine; flags and --set
    lie over it.

    \b
    calibrant train --data leaves --model resnet18 --image-size 64 --loss vace --epochs 20 --out runs/leaves
    calibrant train cub.toml --set loss.lam=0.7 --seed 2
    calibrant train --recipe fedlas-ls/cub/vit-b16 --data CUB_200_2011 --out runs/cub
    calibrant train --data leaves --model vit_small_patch16_224 --token-reduction evit --keep-rate 0.25 --clca
    calibrant train --resume --out runs/leaves
    calibrant train --resume --out runs/leaves --epochs 40
    torchrun --nproc-per-node 2 --max-restarts 3 -m calibrant train cub.toml
    calibrant train cub.toml --engine ray --workers 4
    """
    from calibrant.errors import ConfigError
    from calibrant.train.config import TrainConfig, train_config
    from calibrant.train.distributed import is_first
    from calibrant.train.engine import fit
    from calibrant.train.run.folder import CHECKPOINT_FILE
    from calibrant.train.run.resume import resumed_config
    from calibrant.train.settings_table import laid_over

    resume, overwrite, as_json = options.pop("resume"), options.pop("overwrite"), options.pop("as_json")
    engine, workers, address = options.pop("engine"), options.pop("workers"), options.pop("ray_address")
    refuse_address(address, engine=engine)
    if engine == "process" and workers is not None:
        raise ConfigError(
            "belongs to --engine ray",
            where="--workers",
            fix="on one machine: torchrun --nproc-per-node N -m calibrant train ...",
        )
    flags = {k: v for k, v in options.items() if v is not None and k != "clca"}
    if options["clca"]:
        if options["token_reduction"] is None and config is None and options["recipe"] is None:
            raise ConfigError("needs a token reduction", where="--clca", fix="add --token-reduction evit, or none")
        flags |= {"cla": True, "cache_tokens": 1}
    recipe = flags.pop("recipe", None)
    if resume and config is None and recipe is None and not set(flags) - {"out", "epochs"}:
        longer = [f"schedule.epochs={flags['epochs']}"] if "epochs" in flags else []
        resolved = resumed_config(flags.get("out", TrainConfig().out), [*settings, *longer])
    else:
        table = laid_over(_scaled(_table_of(config, recipe), flags.get("epochs")), flags)
        if not table.get("data", {}).get("path") and not any(s.startswith("data.path=") for s in settings):
            raise ConfigError("no data", fix="pass --data DIR, or set data.path in the config file")
        resolved = train_config(table, settings, where=config or "options")
    try:
        with _warnings_in_a_line():
            if engine == "ray":
                from calibrant.train.machines.ray_train import Workers, fit_on_ray

                group = None if workers is None else Workers(*workers)
                run = fit_on_ray(
                    resolved,
                    group,
                    resume=resume,
                    overwrite=overwrite,
                    on_epoch=_show,
                    on_start=_start,
                    address=address,
                )
            else:
                run = fit(resolved, resume=resume, overwrite=overwrite, on_epoch=_show, on_start=_start)
    except KeyboardInterrupt:
        if is_first() and (resolved.out / CHECKPOINT_FILE).is_file():
            click.echo(f"go on with: {_again(resolved.out, engine, workers, address)}", err=True)
        raise
    if is_first():  # of the processes of torchrun
        _report(run, as_json=as_json)


def _again(out: Path, engine: str, workers: tuple[int, int] | None, address: str | None) -> str:
    """The whole command that goes on with a run, by as many processes and with the same plugins."""
    from calibrant import plugins
    from calibrant.train.machines.torchrun import start_words

    words = [*start_words(), "train", "--resume", "--out", str(out)]
    if engine != "process":
        words += ["--engine", engine]
    if workers is not None:
        words += ["--workers", str(workers[1]) if workers[0] == 1 else f"{workers[0]}:{workers[1]}"]
    if address is not None:
        words += ["--ray-address", address]
    for source in plugins.sources():
        words += ["--plugin", source]
    return shlex.join(words)


def _table_of(config: Path | None, recipe: str | None) -> dict[str, Any]:
    """The settings of a file or of a recipe, or none."""
    from calibrant.config import read_toml
    from calibrant.errors import ConfigError
    from calibrant.train.recipe import recipe_table

    if recipe is not None and config is not None:
        raise ConfigError("give a config file or a recipe, not both", where="--recipe", fix="use --set over a recipe")
    return recipe_table(recipe) if recipe is not None else read_toml(config) if config is not None else {}


def _scaled(table: dict[str, Any], epochs: int | None) -> dict[str, Any]:
    """The schedule of a file or recipe for another number of epochs: milestones and warm-up keep their share."""
    from calibrant.train.recipe import moved_schedule

    schedule = table.get("schedule", {})
    before = schedule.get("epochs")
    if epochs is None or before is None or epochs == before:
        return table
    moved = moved_schedule(schedule, epochs)
    if moved:
        words = ", ".join(f"{key} {schedule[key]} -> {value}" for key, value in moved.items())
        click.echo(f"schedule for {epochs} epochs in the place of {before}: {words}", err=True)
    return {**table, "schedule": {**schedule, **moved}}


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """A warning to users of the library is a line to users of the command, without a place in our code."""
    import warnings

    from calibrant.train.losses.prior import DoubleCorrectionWarning

    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, DoubleCorrectionWarning):
            click.echo(f"warning: {message}", err=True)
        else:
            shown(message, category, *rest, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _start(line: str) -> None:
    click.echo(line, err=True)


def _show(epoch: Epoch) -> None:
    val = epoch.val
    name = f"epoch {epoch.epoch:>{len(str(epoch.epochs))}}/{epoch.epochs}" if epoch.epoch else "frozen head"
    click.echo(
        f"{name}  loss {epoch.train_loss:.4f}  "
        f"val accuracy {val['accuracy']:.2%}  NLL {val['nll']:.4f}  ECE {val['ece']:.2%}  "
        f"{epoch.seconds:.1f} s{'  best' if epoch.best else ''}",
        err=True,
    )


def _report(run: Path, *, as_json: bool) -> None:
    import json

    from calibrant.train.run.history import read_history
    from calibrant.train.run.results import bad_images

    lines = read_history(run)
    best = next(line for line in reversed(lines) if line["best"])
    left_out = bad_images(run)
    files = sorted(str(p) for p in (run / "predictions").glob("*.parquet"))
    if as_json:
        summary = {"run": str(run), "best_epoch": best["epoch"], "val": best["val"], "predictions": files}
        click.echo(json.dumps({**summary, "bad_images": left_out}))
        return
    for name in left_out:
        click.echo(f"left out, cannot be read: {name}", err=True)
    kept = (
        f"best epoch {best['epoch']}" if best["epoch"] else "the head on the frozen network was not beaten and is kept"
    )
    click.echo(f"{run}: {kept}, predictions in {', '.join(files)}")
    click.echo(f"next: {shlex.join(['calibrant', 'calibrate', str(run)])}")


@click.command(short_help="Search settings by the validation metric.")
@click.argument("config", required=False, type=_PATH)
@click.option("--recipe", type=RECIPE, help="As in calibrant train.")
@click.option("--over", "over", multiple=True, required=True, metavar="KEY=a,b,c", help="Values, or low:high[:log].")
@click.option("--trials", type=click.IntRange(1), help="Let Optuna propose so many. Default: the whole grid.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Settings of all trials.")
@click.option("--data", type=_PATH, help="As in calibrant train.")
@click.option("--out", type=_PATH, help="Folder for the trials' runs and search.json.")
@click.option("--seed", default=0, show_default=True, help="Of the proposals.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--shard", default="1/1", show_default=True, metavar="I/N", help="This machine's part of the grid.")
@click.option("--engine", type=click.Choice(["process", "ray"]), default="process", show_default=True)
@RAY_ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def search(
    config: Path | None,
    recipe: str | None,
    over: tuple[str, ...],
    trials: int | None,
    settings: tuple[str, ...],
    data: Path | None,
    out: Path | None,
    seed: int,
    workers: int,
    shard: str,
    engine: Literal["process", "ray"],
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Train once per setting and rank by `engine.select` on the validation set; the test set is not looked at.

    A trial that is finished is not run again, so the same line goes on after an interruption.

    \b
    calibrant search leaves.toml --over loss.lam=0.25,0.5,1 --over loss.rho=0.1,0.3 --out runs/search
    calibrant search leaves.toml --over loss.beta=0.5:8:log --trials 12 --set engine.select=ece
    calibrant search --recipe vace/cub --data CUB_200_2011 --over loss.a=0.8,1,1.2 --over loss.lam=0.25,0.5
    """
    import json

    from calibrant.progress import table
    from calibrant.train.search import Trial, parse_choice
    from calibrant.train.search import search as run_search
    from calibrant.train.settings_table import laid_over

    flags = {k: v for k, v in (("data", data), ("out", out)) if v is not None}

    def show(trial: Trial) -> None:
        click.echo(f"{' '.join(trial.settings)}  {trial.value:.4f}", err=True)

    table_of_all = laid_over(_table_of(config, recipe), flags)
    choices = [parse_choice(text) for text in over]
    with joined(ray_address, engine=engine):
        ranked = run_search(
            table_of_all,
            choices,
            settings=settings,
            trials=trials,
            seed=seed,
            workers=workers,
            shard=shard,
            engine=engine,
            on_trial=show,
        )
    if as_json:
        rows = [{"settings": t.settings, "run": str(t.run), "value": t.value, "val": t.val} for t in ranked]
        click.echo(json.dumps({"trials": rows}))
        return
    columns = ("accuracy", "nll", "ece")
    shown = [[" ".join(t.settings), *(f"{t.val[c]:.4f}" for c in columns), t.run] for t in ranked]
    click.echo(table(["settings", *columns, "run"], shown))


@click.command(short_help="Pack a data set into Parquet or tar shards.")
@click.option("--data", type=_PATH, required=True, help="As in calibrant train: a folder, a list, shards ...")
@click.option("--out", type=_PATH, required=True, help="Folder for {train,val,test}-00000.parquet ...")
@click.option("--format", "kind", type=click.Choice(["parquet", "tar"]), default="parquet", show_default=True)
@click.option("--images-per-shard", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--groups", help="Column whose values must not be divided between splits; it is kept as `group`.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other [data] setting.")
@click.option("--overwrite", is_flag=True, help="Replace shards that are in --out already.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def shards(
    data: Path,
    out: Path,
    kind: Literal["parquet", "tar"],
    images_per_shard: int,
    groups: str | None,
    settings: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the training, validation and test images of a data set into few large files, bytes as they are.

    \b
    calibrant shards --data birds --out birds-shards
    calibrant shards --data leaves.csv --groups plant --out leaves-shards
    calibrant train --data birds-shards --loss vace --out runs/birds
    """
    import json

    from calibrant.errors import ConfigError
    from calibrant.train.config import train_config
    from calibrant.train.data.sources import read_data
    from calibrant.train.data.write_shards import write_shards

    strange = next((s for s in settings if not s.startswith("data.")), None)
    if strange is not None:
        raise ConfigError(f'"{strange}" says nothing about the data', where="--set", fix="use data.KEY=VALUE")
    table: dict[str, Any] = {"data": {"path": data} | ({} if groups is None else {"groups": groups})}
    config = train_config(table, settings)
    written = write_shards(
        read_data(config.data), out, kind=kind, images_per_shard=images_per_shard, overwrite=overwrite
    )
    if as_json:
        click.echo(json.dumps({"files": [str(f) for f in written.files], "images": written.images}))
        return
    counts = ", ".join(f"{n} {split}" for split, n in written.images.items())
    click.echo(f"{out}: {counts} images in {len(written.files)} {kind} shards")
    click.echo(f"next: calibrant train --data {out}{' --groups group' if groups is not None else ''} --out runs/first")
