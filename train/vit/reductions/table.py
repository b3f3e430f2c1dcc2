"""The token reductions, one record each: everything that code outside of a reduction's own file asks about it.

Loads no torch, so that a command line may read it; the class is imported when a network is made. A new reduction is its
file and its record.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from calibrant.train.vit.reductions.stage import Reduction


@dataclass(frozen=True)
class Method:
    """needs: what its class takes besides the stage, of "dim" (width of a token) and "patches" (of the image).
    options: its keyword of the class for a field of `TokenReduction` that it alone reads.
    shrinks: on the block's input, inside its attention (only the sampled rows attend), or between attention and MLP.
    merges: tokens stand for several patches, so that they have no single position and a picture shows groups.
    masks: tokens stay in the sequence as padding or under a policy, where pooling over tokens would count them.
    fuses: what it drops goes into one more token at the end.
    """

    name: str
    home: str  # module in this folder: class
    line: str
    needs: tuple[Literal["dim", "patches"], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    shrinks: Literal["input", "attention", "between"] = "input"
    merges: bool = False
    masks: bool = False
    fuses: bool = False

    def load(self) -> type[Reduction]:
        """Its class."""
        module, _, name = self.home.partition(":")
        cls: type[Reduction] = getattr(importlib.import_module(f"calibrant.train.vit.reductions.{module}"), name)
        return cls


REDUCTIONS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("topk", "topk:TopK", "keeps the tokens that the class token looks at most", shrinks="between"),
        Method("evit", "evit:EViT", "Top-K, and one token with what was dropped", shrinks="between", fuses=True),
        Method("dynamicvit", "dynamicvit:DynamicViT", "a small network decides which stay", needs=("dim",), masks=True),
        Method("ats", "ats:ATS", "samples tokens by significance", shrinks="attention", masks=True),
        Method(
            "tome", "tome:ToMe", "merges the most similar in pairs", options={"tome_repeat": "repeat"},
            shrinks="between", merges=True,
        ),
        Method(
            "patchmerger", "patchmerger:PatchMerger", "mixes all by learned queries", needs=("dim", "patches"),
            merges=True,
        ),
        Method("sit", "sit:SiT", "mixes all by a learned soft assignment", needs=("dim", "patches"), merges=True),
        Method("dpcknn", "dpcknn:DPCKNN", "clusters around density peaks", needs=("dim",), merges=True),
    )
}  # fmt: skip
