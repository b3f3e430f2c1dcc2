"""`calibrant inspect` and the editors of deployed files. Loads neither torch nor onnx."""

from __future__ import annotations

import json
from pathlib import Path

import click

from calibrant.errors import CheckFailed, FormatError

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON on stdout.")
@click.option("--markdown", "as_markdown", is_flag=True, help="A model card in Markdown on stdout.")
@click.option("--check", is_flag=True, help="Exit with 1 if weights or graph do not match the recorded hashes.")
def inspect(model: Path, as_json: bool, as_markdown: bool, check: bool) -> None:
    """Show what MODEL.onnx says about itself.

    \b
    calibrant inspect birds.onnx
    calibrant inspect birds.onnx --markdown > MODEL_CARD.md
    """
    from calibrant.export.card_text import markdown, summary
    from calibrant.export.inspection import describe, foreign_lines

    found = describe(model)
    card = found.card
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    elif card is None:
        click.echo("\n".join(foreign_lines(found)))
    elif as_markdown:
        click.echo(markdown(card), nl=False)
    else:
        click.echo(summary(card, model))
        click.echo("\n".join(f"  {line}" for line in found.notes))
    if check and not found.intact:
        raise CheckFailed("; ".join(found.notes), where=model)
    if as_markdown and card is None:
        raise FormatError("an ONNX file without a calibrant block has no card", where=model)
