"""A study as it is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.errors import ConfigError
from calibrant.train.heads.scores import METRICS as OF_HEADS
from calibrant.train.study.file import names_of_studies, read_study, with_reference


def test_every_study_of_the_package_is_read_and_says_what_it_is() -> None:
    names = names_of_studies()
    assert "fedlas/table1" in names
    for name, title in names.items():
        study = read_study(name)
        assert title == study.title != ""
        assert {"tiny"} <= set(study.scale)


def test_every_study_that_compares_methods_has_the_controls_that_a_claim_needs() -> None:
    drawing = {"fedlas/figures", "vace/boundary"}
    for name in set(names_of_studies()) - drawing:
        study = read_study(name)
        assert study.posthoc == ("temperature", "auto"), name
        if not name.startswith("heads/"):
            continue
        for scale in study.scale.values():  # on a long tail the fair baseline is the prior taken out afterwards
            ran = [m for m in study.method if not scale.methods or m.name in scale.methods]
            assert any(m.set == {"posthoc": {"adjust": 1.0}} for m in ran), name


@pytest.mark.parametrize(("old", "new", "said"), [
    ('reference = "ce"', 'reference = "cee"', 'no method "cee".*did you mean "ce"'),
    ('name = "fedlas-ls"\nset', 'name = "ce"\nset', 'two ..method.. are called "ce"'),
    ("fedlas-ls mean_alpha", "fedlas mean_alpha", "of a method that stands before it"),
    ("fedlas-ls mean_alpha", "fedlas-ls", "is not .METHOD NUMBER."),
    ("epochs = 0.5", "epoch = 0.5", 'no key "epoch"'),
    ("seeds = 2\n[base", "seeds = 0\n[base", "at least one seed"),
    ("seeds = 2\n[base", 'seeds = 2\nfigures = "x"\n[base', 'no key "figures"'),
    ('name = "squares"', 'name = "squares"\nleaves = { clases = 3 }', 'no key "clases"'),
    ('name = "squares"', 'name = "squares"\nleaves = { classes = 1 }', "classes = 1, must be at least 2"),
    ('name = "ce"', 'name = "ce"\nleaves = { classes = 3 }', "ce: leaves are drawn for ..data.."),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name(study_file: Path, old: str, new: str, said: str) -> None:
    text = study_file.read_text()
    assert old in text
    study_file.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=said):
        read_study(study_file)


@pytest.mark.parametrize(("over", "said"), [
    ('posthoc = ["temprature"]', 'no calibrator "temprature".*did you mean "temperature"'),
    ('posthoc = ["density-aware"]', '"density-aware" reads features, and a study fits on logits'),
    ('metrics = ["brier"]', 'a study of heads measures no "brier"'),
    ('foreign = [{ name = "svhn" }]', "reads no foreign images"),
    ("scale = { tiny = { images = 0.5 } }", "scale.tiny: a study of heads takes no share of images"),
    ("scale = { tiny = { epochs = 3 } }", "takes no share of images or epochs"),
])  # fmt: skip
def test_what_a_study_of_heads_would_pass_over_is_refused(tmp_path: Path, over: str, said: str) -> None:
    plain = 'title = "heads"\nkind = "heads"\ndata = [{ name = "d" }]\nmethod = [{ name = "ce" }]\n'
    file = tmp_path / "heads.toml"
    file.write_text(plain)
    assert read_study(file).posthoc == ("temperature",)
    assert set(read_study(file).metrics) <= set(OF_HEADS)
    file.write_text(plain + over)
    with pytest.raises(ConfigError, match=said):
        read_study(file)


def test_another_reference_is_a_method_that_the_scale_runs() -> None:
    study = read_study("cub100/features")
    assert with_reference(study, "focal", "small").reference == "focal"
    with pytest.raises(ConfigError, match='no method "focal"'):  # tiny has six of them
        with_reference(study, "focal", "tiny")


def test_a_name_that_is_nearly_one_is_asked_about() -> None:
    with pytest.raises(ConfigError, match='did you mean "fedlas/table1"'):
        read_study("fedlas/tabel1")
