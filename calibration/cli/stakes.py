"""The options that say how large an error a verdict lets pass."""

from __future__ import annotations

import click

from calibrant.calibration.verdict.policy import POLICIES

POLICY = click.option(
    "--stakes",
    "--policy",
    "policy",
    metavar="|".join(POLICIES),
    help="What is at stake: errors of the confidence up to 10, 5 (the default) or 2 points are then trusted.",
)
MARGIN = click.option(
    "--margin", type=float, metavar="SHARE", help="The same as a number: the calibration error that is let pass, 0.05."
)
