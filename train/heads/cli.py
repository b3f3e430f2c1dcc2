"""`calibrant features`, `calibrant head` and `calibrant sweep`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from calibrant.errors import ConfigError
from calibrant.overwrite import OVERWRITE, refuse_to_replace
from calibrant.remote.ray_session import RAY_ADDRESS, joined
from calibrant.train.known_words import KIND, LOSS, MODEL


@click.command()
@click.option("--model", type=MODEL, required=True, help="Any timm model, e.g. vit_base_patch16_dinov3.lvd1689m.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Images in any layout: a folder, a CSV list, shards, a benchmark.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Cache folder; resumed if it is there.")
@click.option("--weights", type=click.Path(path_type=Path), help="Local .safetensors or .pth instead of the model hub.")
@click.option("--pretrained/--no-pretrained", default=True, help="Weights of the model hub.", show_default=True)
@click.option(
    "--pooling",
    type=click.Choice(["head", "class", "mean", "class+mean", "tokens"]),
    default="head",
    show_default=True,
    help="head: what the model's own classifier reads; class+mean: class token and mean of the patches side by side; "
    "tokens: every patch, for head.kind = map.",
)
@click.option(
    "--layers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="So many layers from the end are pooled and laid side by side.",
)
@click.option(
    "--view",
    "views",
    multiple=True,
    default=("eval",),
    show_default=True,
    help="eval, flip, full, full-flip; at random crop1, crop2, ..., rand1, trivial1, augmix1, colour1, erase1; of two "
    "images cutmix1, superpixel1, transplant1. Repeat for several. New views are added to a cache.",
)
@click.option("--split", "splits", multiple=True, help="Only this split, e.g. train for random crops; repeatable.")
@click.option(
    "--test-fraction",
    type=click.FloatRange(0, 0.9),
    help="Share of undivided images kept for the test, by groups where there are any; seed 42.  [default: 0.2]",
)
@click.option("--image-size", type=int, help="Pixels; the model's own if not given.")
@click.option("--crop-pct", type=float, help="Crop over resize; the model's own if not given.")
@click.option("--amp", type=click.Choice(["none", "bf16", "fp16"]), default="none", show_default=True)
@click.option("--storage", type=click.Choice(["float32", "float16"]), default="float32", show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@click.option(
    "--decode-threads",
    "workers",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Threads that decode images ahead.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of random views.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
@click.option(
    "--model-option", "options", multiple=True, metavar="KEY=VALUE", help="For timm's constructor; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Result as JSON.")
def features(
    model: str,
    data: Path,
    out: Path,
    weights: Path | None,
    pretrained: bool,
    pooling: Any,
    layers: int,
    views: tuple[str, ...],
    splits: tuple[str, ...],
    test_fraction: float | None,
    image_size: int | None,
    crop_pct: float | None,
    amp: Any,
    storage: Any,
    batch_size: int,
    workers: int,
    seed: int,
    device: str,
    options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run a frozen backbone over images once and keep its features.

    \b
    Example: calibrant features --model vit_base_patch16_dinov3.lvd1689m --data birds --out feats
    """
    from calibrant.config import with_overrides
    from calibrant.train.heads.features.extract import FeatureConfig, extract, usual_test_share

    done = extract(
        FeatureConfig(
            model,
            data,
            out,
            pretrained,
            weights,
            pooling,
            views,
            image_size,
            crop_pct,
            amp,
            storage,
            batch_size,
            workers=workers,
            seed=seed,
            device=device,
            options=with_overrides({}, options),
            splits=splits,
            test_fraction=usual_test_share(out) if test_fraction is None else test_fraction,
            layers=layers,
        )
    )
    m = done.cache.manifest
    if as_json:
        facts = {"made": done.made, "kept": done.kept, "passes": done.images}
        click.echo(json.dumps({**facts, "out": str(out), "manifest": m.to_dict()}, indent=2))
        return
    shape = f"{m.tokens} x {m.width}" if m.tokens > 1 else str(m.width)
    click.echo(
        f"{out}: {done.made} shards made, {done.kept} kept; {m.model['name']} ({m.model['sha256'][:12]}), {shape} a row"
    )
    click.echo("  ".join(f"{name} {count}" for name, count in m.splits.items()) + f"  views {' '.join(m.views)}")
    click.echo(f"Next: calibrant head {out} --set input.transform=standardise --out runs/head")


class _WithSettings(click.Command):
    """Its help lists what --set takes, from the same descriptions as the Laboratory's controls."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Settings (--set TABLE.KEY=VALUE)"):
            formatter.write_dl(_setting_lines())


def _setting_lines() -> list[tuple[str, str]]:
    from dataclasses import fields, is_dataclass

    from calibrant.settings.heads import HeadConfig
    from calibrant.settings.option import options_of

    config = HeadConfig()
    tables = [(f"{f.name}.", getattr(config, f.name)) for f in fields(config) if is_dataclass(getattr(config, f.name))]
    lines = []
    for prefix, table in [("", config), *tables]:
        for name, described in options_of(table).items():
            span = f", from {described.allowed[0]:g} to {described.allowed[1]:g}" if described.allowed else ""
            value = getattr(table, name)
            default = "nothing" if value is None or value == {} else json.dumps(value).strip('"')
            lines.append((f"{prefix}{name}", f"{described.help} [{default}{span}]".strip()))
    return lines


@click.command(cls=_WithSettings)
@click.argument("features", type=click.Path(path_type=Path))
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder; without it, metrics only.")
@click.option("--kind", type=KIND, help="head.kind: linear, logistic, mlp, cosine, arcface, ncm, lda, map, prototype.")
@click.option("--loss", type=LOSS, help="loss.name: ce, balanced-softmax, focal, ldam, vace, fedlas-ls, ...")
@click.option("--set", "settings", multiple=True, metavar="TABLE.KEY=VALUE", help="Any setting; repeatable.")
@click.option("--seed", type=int, help="Same seed, same head. Default: 1.")
@click.option("--data", type=click.Path(path_type=Path), help="The image folder, for the comparison that export makes.")
@click.option("--device", default="cpu", show_default=True, help="auto, cpu, cuda, cuda:1 ...")
@OVERWRITE
@click.option("--json", "as_json", is_flag=True, help="Result as JSON.")
def head(
    features: Path,
    config: Path | None,
    out: Path | None,
    kind: str | None,
    loss: str | None,
    settings: tuple[str, ...],
    seed: int | None,
    data: Path | None,
    device: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Train a head on cached features; write a run that predict, calibrate, evaluate and export read.

    FEATURES is a folder of `calibrant features`, or a table of your own: npz, npy pair, Parquet, CSV with labels, and
    where there are, split and group. Undivided tables give 20 % of their groups (else rows) to the test, seed 42.

    \b
    Example: calibrant head feats --loss balanced-softmax --set input.transform=standardise \\
                 --set posthoc.temperature=global --out runs/head
    """
    import torch

    from calibrant.config import read_toml
    from calibrant.progress import bar
    from calibrant.train.heads.config import head_config
    from calibrant.train.heads.device import chosen_device
    from calibrant.train.heads.experiment import run_experiment
    from calibrant.train.heads.features.cache import FeatureCache
    from calibrant.train.heads.matrices import Matrices
    from calibrant.train.heads.run import summary, write_run
    from calibrant.train.run.folder import CONFIG_FILE

    refuse_to_replace(out, overwrite=overwrite, marker=CONFIG_FILE)
    extra = [
        f"{key}={json.dumps(value)}"
        for key, value in (("head.kind", kind), ("loss.name", loss), ("seed", seed))
        if value is not None
    ]
    table = read_toml(config) if config is not None else {}
    chosen = head_config(table, [*extra, *settings], where=config or "calibrant head")
    cache = FeatureCache.open(features)
    on = chosen_device(device)
    if on.type == "cpu":
        torch.set_num_threads(1)  # more threads gain nothing at this size and change the last bits
    moved = bar(what="training", total=chosen.optimizer.epochs + chosen.crt.epochs, unit="epochs")
    result = run_experiment(Matrices(cache), chosen, device=on, on_epoch=lambda epoch, loss: moved.update(1))
    moved.close()
    run = None if out is None else write_run(out, cache, result, data=data)
    command = None if run is None else run.export_command
    if as_json:
        click.echo(json.dumps(summary(result, cache, command), indent=2))
        return
    click.echo(report(result))
    if run is not None:
        click.echo(f"\nWritten to {run.path}. Next:")
        other = f"calibrant evaluate {run.path}"
        if cache.has_backbone:
            other = f"the views {' '.join(chosen.data.test_views)} cannot be one graph"
        click.echo(f"  {command or other}")


def report(result: Any) -> str:
    """Metrics of validation and test side by side, and the total of all prior corrections."""
    from calibrant.progress import table
    from calibrant.shares import head_medium_tail
    from calibrant.train.heads.scores import GROUPED, METRICS

    columns = [(f"val ({len(result.val.labels):,})", result.val_metrics)]
    if result.test_metrics:
        columns.append((f"test ({len(result.test.labels):,})", result.test_metrics))
    spans = {name: f"{low:.4f} .. {high:.4f}" for name, (low, high) in result.test_intervals.items()}
    even = not head_medium_tail(result.counts.tolist())
    shown = [name for name in METRICS if not (even and name in GROUPED)]
    rows = [[name, *(f"{values[name]:.4f}" for _, values in columns), spans.get(name, "")] for name in shown]
    lines = [table(["", *(name for name, _ in columns), "95 % interval" if spans else ""], rows), ""]
    parts = " + ".join(f"{name} {value:.2f}" for name, value in result.corrections.items()) or "none"
    lines.append(f"prior correction: {parts}; total strength {result.total_strength:.2f}")
    warning = result.double_correction()
    if warning:
        lines.append(f"Warning: {warning}, and 1 is Bayes")
    return "\n".join(lines)


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--features",
    multiple=True,
    metavar="[NAME=]DIR",
    help="Feature cache; repeat for several encoders, each tried with every head. Else the file's own `features`.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the results; else the file's own `out`.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes; one per core if not given.")
@click.option(
    "--rank-by", type=click.Choice(["val", "test"]), help="What sorts the table; else the file's own `rank_by`, or val."
)
@click.option("--shard", default="1/1", show_default=True, metavar="I/N", help="This machine's part of the jobs.")
@click.option("--engine", type=click.Choice(["process", "ray"]), default="process", show_default=True)
@RAY_ADDRESS
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
def sweep(
    config: Path,
    features: tuple[str, ...],
    out: Path | None,
    workers: int | None,
    rank_by: Any,
    shard: str,
    engine: Any,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Compare heads: a baseline and one change at a time, a grid, or Optuna, over several seeds.

    Finished runs are kept and never made again; an interrupted sweep goes on where it stopped.

    \b
    Example: calibrant sweep longtail.toml --features feats --out sweeps/longtail
             calibrant sweep heads.toml --features lite0=feats/lite0 --features dino=feats/dino --out sweeps/grid
    """
    from calibrant.train.heads.sweep.plan import read_sweep
    from calibrant.train.heads.sweep.run import run_sweep

    plan = read_sweep(config, features=_caches(features), out=out, rank_by=rank_by)
    with joined(ray_address, engine=engine):
        done = run_sweep(plan, workers=workers, shard=shard, engine=engine, say=lambda line: click.echo(line, err=True))
    if done.table is None:
        click.echo(f"{done.finished} of {done.total} runs are finished; the other shards have the rest")
        return
    click.echo(json.dumps(done.table.to_dict(), indent=2) if as_json else done.table.text())
    click.echo(f"{plan.out}: results.csv, results.parquet, table.md, table.html", err=True)


def _caches(given: tuple[str, ...]) -> dict[str, Path] | None:
    """Caches by name, a folder's own where none is given."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, place = text.partition("=")
        path = Path(place if equals and not Path(text).exists() else text)
        name = name if equals and not Path(text).exists() else path.name
        if name in found:
            raise ConfigError(f'two caches are called "{name}"', where="--features", fix="name them: NAME=DIR")
        found[name] = path
    return found or None
