"""The losses, one record each. A new loss is its file in train/losses and its record here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LossRecord:
    """home: module in calibrant.train.losses, and class.

    reads: logits; angles, for which a head of its own gives cosines and margin and scale are set; features, a term
    beside a loss on logits, which trains no classifier.
    """

    name: str
    home: str
    line: str
    reads: Literal["logits", "angles", "features"] = "logits"


_L = LossRecord
LOSSES: dict[str, LossRecord] = {
    record.name: record
    for record in (
        _L("ce", "cross_entropy:CrossEntropy", "cross-entropy"),
        _L("balanced-softmax", "balanced_softmax:BalancedSoftmax", "corrects the class prior in training"),
        _L("logit-adjusted", "balanced_softmax:BalancedSoftmax", "the same, under its other name"),
        _L("focal", "focal:Focal", "less weight on sure rows"),
        _L("ldam", "ldam:LDAM", "a margin that is larger for rare classes"),
        _L("ls", "label_smoothing:LabelSmoothing", "label smoothing"),
        _L("mbls", "mbls:MbLS", "label smoothing beyond a margin of the logits"),
        _L("acls", "acls:ACLS", "smoothing that follows the logits"),
        _L("flsd53", "flsd53:FLSD53", "focal, gamma by the true class's probability"),
        _L("dual-focal", "dual_focal:DualFocal", "focal, with the runner-up"),
        _L("adafocal", "adafocal:AdaFocal", "focal, gamma by the validation gap"),
        _L("ecp", "ecp:ECP", "a penalty on confidence"),
        _L("mmce", "mmce:MMCE", "a kernel estimate of the calibration error"),
        _L("mdca", "mdca:MDCA", "mean confidence against frequency, class by class"),
        _L("cpc", "cpc:CPC", "pairwise constraints on logits"),
        _L("crl", "crl:CRL", "ranks confidence by how often a row was right"),
        _L("vace", "vace:VACE", "a temperature per class by the scatter of its features"),
        _L("fedlas-ls", "fedlas:FeDLaSLS", "label smoothing by feature norm and a learned gate"),
        _L("fedlas-mbls", "fedlas:FeDLaSMbLS", "margin-based smoothing by feature norm and a learned gate"),
        _L("arcface", "arcface:ArcFace", "a margin on the angle", reads="angles"),
        _L("supcon", "supcon:SupCon", "supervised contrastive", reads="features"),
        _L("balanced-contrastive", "balanced_contrastive:BalancedContrastive", "classes weigh alike", reads="features"),
        _L("center", "center:Center", "distance to the class's centre", reads="features"),
        _L("prototype", "prototype:Prototype", "distance to learned prototypes", reads="features"),
    )
}


def on_logits() -> tuple[str, ...]:
    """Names of the losses that train any classifier."""
    return tuple(record.name for record in LOSSES.values() if record.reads == "logits")
