"""The options that say how large an error a verdict lets pass."""

from __future__ import annotations

import click

POLICY = click.option(
    "--policy",
    metavar="STAKES",
    help="What is at stake: low, standard (the default) or high; errors up to 10, 5 or 2 points are then trusted.",
)
MARGIN = click.option(
    "--margin", type=float, metavar="SHARE", help="The same as a number: the calibration error that is let pass, 0.05."
)
