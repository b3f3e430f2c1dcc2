"""`serve --check`: everything that can be said without starting."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from click.testing import CliRunner

from calibrant.errors import CalibrantError
from calibrant.serve.cli import serve


def check(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(serve, [*arguments, "--check"])
    if done.exception is not None and not isinstance(done.exception, SystemExit | CalibrantError):
        raise done.exception
    said = str(done.exception) if isinstance(done.exception, CalibrantError) else done.output
    return done.exit_code, said


def test_check_loads_what_would_be_served_and_says_what_would_fail(tmp_path: Path, tiny: ModuleType) -> None:
    tiny.write(tmp_path / "birds.onnx")
    config = tmp_path / "serve.toml"
    config.write_text('models = ["birds.onnx"]\nport = 0\n[limits]\nmax_rows = 7\n')
    code, said = check("--config", str(config))
    assert (code, "birds version 1:" in said, "4 classes" in said, "This would start." in said) == (0, True, True, True)
    for line, says in (
        ('canary = ["birds@7=0.5"]', 'no model "birds@7"'),
        ('tls_cert = "none.pem"', "the certificate cannot be used"),
        ('token_file = "none"', "cannot be read"),
        ("sample = 2", "2.0 is not in the range"),
        ("keep_days = 1", "keeps nothing without --feedback-log"),
        ("log_top = 50", "keeps nothing without --feedback-log"),
        ('log_to = "s3://b/log"', "keeps nothing without --feedback-log"),
        ('feedback_log = "log"\nlog_to = "nowhere://b/log"', "nowhere://b/log: cannot be opened"),
        ("[watch]\nfeatures = true", "features is an option: write it above the tables as feature_drift"),
        ("[watch]\ntop = 50", "top is an option: write it above the tables as log_top"),
    ):
        config.write_text(f'models = ["birds.onnx"]\n{line}\n')
        code, said = check("--config", str(config))
        assert code != 0, line
        assert says in said


def test_check_refuses_what_ray_would_refuse_and_a_log_that_is_a_file(tmp_path: Path, tiny: ModuleType) -> None:
    model = str(tiny.write(tmp_path / "birds.onnx"))
    code, said = check(model, "--engine", "ray", "--admin")
    assert (code != 0, "--admin: is not there with --engine ray" in said) == (True, True)
    assert check(model, "--engine", "ray")[0] == 0
    code, said = check(model, "--feedback-log", model)
    assert (code != 0, "a feedback log is a folder" in said) == (True, True)


def test_every_option_of_the_log_stands_in_a_file_and_is_checked(tmp_path: Path, tiny: ModuleType) -> None:
    tiny.write(tmp_path / "birds.onnx")
    config = tmp_path / "serve.toml"
    config.write_text(
        'models = ["birds.onnx"]\nport = 0\nfeedback_log = "log"\nlog_to = "memory://log"\nlog_top = 50\n'
        "log_float16 = true\nkeep_days = 3\nkeep_gib = 2.5\nsegment_mib = 8\nsegment_hours = 2\n"
    )
    code, said = check("--config", str(config))
    assert code == 0, said
    assert "memory://log: reached" in said
