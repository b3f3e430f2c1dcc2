from __future__ import annotations

from pathlib import Path

from calibrant.export.adoption.preprocess.diagnosis import Contender, Diagnosis
from calibrant.export.adoption.report import diagnosis_lines, lines, to_dict

from .conftest import Foreigners


def contender(name: str, worse: float, error: float = 0.02, accuracy: float = 0.8) -> Contender:
    return Contender(name, 0.5 + worse, accuracy, worse, error)


def test_a_pair_is_told_as_a_pair() -> None:
    found = Diagnosis((contender("RGB ImageNet", 0.0), contender("RGB CLIP", 0.03), contender("RGB 0-1", 0.4)),
                      "RGB CLIP", 200, 10)  # fmt: skip
    assert diagnosis_lines(found) == [
        "preprocessing: RGB ImageNet or RGB CLIP fits 200 labelled pictures best (not told apart, at most 0.03 nats); "
        "yours is among them"
    ]


def test_resizes_are_a_warning_and_no_finding() -> None:
    found = Diagnosis((contender("RGB 0-1", 0.0),), "RGB 0-1", 200, 10,
                      (contender("squash", 0.0), contender("as given", 0.2)))  # fmt: skip
    assert "does not show what the network was trained with" in diagnosis_lines(found)[-1]


def test_lines_and_json_tell_the_same(foreigners: Foreigners) -> None:
    done = foreigners.adopt(foreigners.write(lambda m: m.head(m.body())))
    text, block = "\n".join(lines(done, Path("x.onnx"))), to_dict(done)
    assert block["proof"]["difference"] == done.proof.difference
    assert f"{done.proof.difference:.1e}" in text
    assert all(note in text for note in block["notes"])
