"""Each source file has a test file of the same name in the mirrored folder, or stands here under the one that tests it.

The list may only get shorter: who writes the missing file takes the line out.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("calibrant", "calibration", "serve", "train", "export", "dashboard")
MOST = 130  # never raise it
# The test file, or folder of them, by which a source without one of its own is seen to work: and its sources.
TESTED_WITH_OTHERS = {
    "tests/calibration/calibrators": """
        calibration/calibrators/form.py
    """,
    "tests/calibration/intervals/test_binned.py": """
        calibration/intervals/measured.py
        calibration/intervals/smooth.py
    """,
    "tests/calibration/label_shift/test_files.py": """
        calibration/formula.py
    """,
    "tests/calibration/report/test_html.py": """
        calibration/report/charts.py
        calibration/report/figures.py
    """,
    "tests/calibration/statistics/test_mass.py": """
        calibration/statistics/accumulate.py
    """,
    "tests/calibration/statistics/test_reservoir.py": """
        calibration/statistics/sidecar.py
    """,
    "tests/calibration/statistics/test_statistics.py": """
        calibration/statistics/grid.py
        calibration/statistics/row_scores.py
        calibration/statistics/tables.py
    """,
    "tests/calibration/test_adjustment.py": """
        calibration/softmax.py
    """,
    "tests/calibration/cli/test_calibrate.py": """
        calibration/cross_check.py
    """,
    "tests/calibration/test_evaluate_files.py": """
        calibration/subjects.py
    """,
    "tests/commands/test_predict.py": """
        train/predict.py
    """,
    "tests/dashboard/numbers/test_measures.py": """
        dashboard/folder/artifacts.py
    """,
    "tests/dashboard/numbers/test_traffic.py": """
        dashboard/numbers/recalibration.py
    """,
    "tests/dashboard/views/overview/test_page.py": """
        dashboard/folder/hashes.py
        dashboard/numbers/served_prior.py
    """,
    "tests/dashboard/widgets/test_switches.py": """
        calibrant/settings/option.py
    """,
    "tests/export/graph/test_blocks.py": """
        calibration/calibrators/steps.py
        export/graph/piecewise.py
    """,
    "tests/export/quantization/test_quantize.py": """
        export/quantization/bench.py
        export/quantization/candidates.py
        export/quantization/quantizers.py
        export/quantization/report.py
    """,
    "tests/export/test_edit.py": """
        export/checks/card_text.py
        export/edit_cli.py
        export/graph/assemble.py
    """,
    "tests/export/test_formula.py": """
        export/graph/wrapper.py
    """,
    "tests/export/test_onnx_file.py": """
        calibrant/artifacts/card_checks.py
        export/checks/inspection.py
    """,
    "tests/export/test_redecide.py": """
        calibration/conformal/holding.py
        calibration/decisions.py
    """,
    "tests/export/test_run.py": """
        export/checks/speed.py
        export/checks/stored_predictions.py
        export/checks/verify.py
        export/cli.py
    """,
    "tests/export/test_to_onnx.py": """
        export/graph/head.py
        export/graph/settings.py
        export/graph/trace.py
    """,
    "tests/export/triton/test_repository.py": """
        export/triton/decode_step.py
    """,
    "tests/images/layouts/test_layouts.py": """
        calibrant/images/image_set.py
        calibrant/images/layout.py
        calibrant/images/layouts/folder.py
        calibrant/images/listing.py
    """,
    "tests/images/layouts/test_parquet.py": """
        calibrant/images/row_groups.py
    """,
    "tests/serve/engine/test_classifier.py": """
        serve/engine/deployed_formula.py
        serve/engine/pixels.py
        serve/engine/providers.py
    """,
    "tests/serve/grpc/test_server.py": """
        serve/grpc/messages.py
        serve/grpc/service.py
        serve/grpc/wire.py
    """,
    "tests/serve/http/test_limits.py": """
        serve/http/app.py
        serve/http/connections.py
        serve/http/message.py
        serve/http/request_reader.py
    """,
    "tests/serve/http/test_routes.py": """
        serve/http/handlers.py
        serve/http/openapi/document.py
        serve/http/openapi/schemas.py
        serve/http/pages.py
    """,
    "tests/train/machines/test_ray_train.py": """
        train/machines/ray_losses.py
        train/machines/ray_worker.py
    """,
    "tests/serve/callers/test_generator.py": """
        serve/callers/bench.py
        serve/callers/caller.py
    """,
    "tests/serve/models/test_batcher.py": """
        serve/models/batch_runner.py
    """,
    "tests/serve/monitor/test_monitor.py": """
        serve/http/exposition.py
    """,
    "tests/serve/processes/test_server.py": """
        serve/processes/background.py
    """,
    "tests/serve/protocol/test_body.py": """
        serve/protocol/answer.py
        serve/protocol/checks.py
        serve/protocol/tensor_values.py
        serve/protocol/tensors.py
    """,
    "tests/serve/test_config.py": """
        serve/cli.py
        serve/http/prometheus.py
    """,
    "tests/serve/test_core.py": """
        serve/control.py
        serve/inference.py
        serve/models/derived.py
        serve/models/description.py
    """,
    "tests/test_one_number.py": """
        calibrant/artifacts/onnx_file.py
        train/run/run_record.py
    """,
    "tests/test_pipeline.py": """
        calibrant/commands/demo.py calibrant/commands/demo_heads.py calibrant/commands/demo_traffic.py
    """,
    "tests/train/augment/test_mix.py": """
        train/seeds.py
    """,
    "tests/train/augment/test_views.py": """
        train/augment/crops.py
        train/augment/policies.py
        train/evaluate.py
    """,
    "tests/train/data/test_loader.py": """
        train/data/pixels.py
    """,
    "tests/train/data/test_sources.py": """
        train/data/pixel_source.py
    """,
    "tests/train/heads/features/test_extract.py": """
        train/heads/features/backbone.py
        train/heads/features/views.py
    """,
    "tests/train/heads/sweep/test_run.py": """
        train/heads/sweep/jobs.py
        train/heads/sweep/plan.py
        train/heads/sweep/trials.py
    """,
    "tests/train/heads/test_run.py": """
        export/config.py
        train/heads/cli.py
        train/heads/config.py
        train/heads/device.py
        train/heads/experiment.py
        train/heads/fused.py
    """,
    "tests/train/heads/training/test_trainer.py": """
        train/heads/training/auxiliary.py
        train/heads/training/balance.py
        train/heads/training/closed_form.py
        train/heads/training/ensemble.py
        train/heads/training/head_loss.py
        train/heads/training/modules.py
        train/heads/training/optimizing.py
        train/heads/training/trained.py
    """,
    "tests/train/losses/test_every_loss.py": """
        calibrant/settings/losses.py
        train/losses/shared/checks.py
        train/losses/shared/gather.py
        train/losses/shared/loss.py
        train/losses/shared/norm_index.py
        train/losses/shared/rows.py
        train/losses/shared/sample_memory.py
    """,
    "tests/train/losses/test_mmce.py": """
        train/losses/shared/target.py
    """,
    "tests/train/model/test_evaluation_transform.py": """
        train/model/recipes.py
    """,
    "tests/train/test_cli.py": """
        train/run/folder.py
    """,
    "tests/train/test_distributed.py": """
        train/config.py
    """,
    "tests/train/test_engine.py": """
        train/loop/parts.py
    """,
    "tests/train/run/test_resume.py": """
        train/run/history.py
    """,
    "tests/train/vit/reductions/test_ats.py": """
        train/vit/reductions/stage.py
    """,
    "tests/train/vit/test_deploy.py": """
        train/vit/cla.py
    """,
    "tests/train/vit/test_golden.py": """
        train/vit/reductions/table.py
        train/vit/tokens.py
    """,
    "tests/train/vit/test_reduce.py": """
        train/vit/attention.py
        train/vit/backbone.py
        train/vit/hook.py
        train/vit/inference_block.py
    """,
}


def mirrored(source: Path) -> Path:
    """calibrant/x.py is tested by tests/test_x.py, serve/http/x.py by tests/serve/http/test_x.py."""
    inner = source.parts[1:] if source.parts[0] == "calibrant" else source.parts
    return Path("tests", *inner).with_name(f"test_{source.name}")


def sources() -> list[Path]:
    found = [p.relative_to(ROOT) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
    return [p for p in found if p.name != "__init__.py" and _does_something(ROOT / p)]


def _does_something(source: Path) -> bool:
    """Fields and constants alone have no behaviour of their own that a file of tests could hold."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(source.read_text()))
    )


def listed() -> list[str]:
    return [source for text in TESTED_WITH_OTHERS.values() for source in text.split()]


def test_every_source_has_a_test_file_of_its_name_or_is_listed() -> None:
    without = {p.as_posix() for p in sources() if not (ROOT / mirrored(p)).is_file()}
    assert without - set(listed()) == set()


def test_the_list_holds_only_what_has_no_file_and_gets_no_longer() -> None:
    without = {p.as_posix() for p in sources() if not (ROOT / mirrored(p)).is_file()}
    assert set(listed()) - without == set(), "take these out of the list"
    assert len(listed()) == len(set(listed())) <= MOST


def test_what_the_list_names_is_there() -> None:
    assert [name for name in TESTED_WITH_OTHERS if not (ROOT / name).exists()] == []
