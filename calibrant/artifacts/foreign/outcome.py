"""The kind of outcome: does one class exclude the others?

exclusive: a row has one class; probabilities are softmax(z). independent: each label is there or not by itself;
probabilities are sigmoid(z_k), and labels are a matrix of 0 and 1.
"""

from __future__ import annotations

from typing import Literal

Outcome = Literal["exclusive", "independent"]
OUTCOMES: tuple[Outcome, ...] = ("exclusive", "independent")
