"""Everything that GET /metrics tells."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calibrant.serve.http.prometheus import Exposition
from calibrant.serve.models.model import Model
from calibrant.serve.own_memory import resident_bytes

if TYPE_CHECKING:
    from calibrant.serve.http.app import Application


def expose(out: Exposition, app: Application, reports: Mapping[int, dict[str, Any]]) -> None:
    """`reports`: of the monitors that count, by their id()."""
    connections, statuses, lifecycle = app.connections, app.statuses, app.control.lifecycle
    out.add("process_cpu_seconds_total", "counter", "CPU time of the process.", time.process_time())
    out.add("process_start_time_seconds", "gauge", "When the server started.", app.started)
    if (resident := resident_bytes()) is not None:
        out.add("process_resident_memory_bytes", "gauge", "Resident memory.", resident)
    refusals = {} if connections is None else connections.refusals
    answers = {status: statuses.get(status, 0) + refusals.get(status, 0) for status in {*statuses, *refusals}}
    for status, count in sorted(answers.items()):
        out.add("calibrant_http_requests_total", "counter", "Answers by status.", count, {"status": str(status)})
    if connections is not None:
        out.add("calibrant_http_connections", "gauge", "Open connections.", len(connections.open))
        out.add("calibrant_http_connections_total", "counter", "Connections accepted.", connections.accepted)
        out.add("calibrant_http_connections_refused_total", "counter", "Over the limit.", connections.refused)
    if app.grpc is not None:
        name = "calibrant_grpc_connections"
        out.add(name, "gauge", "Open gRPC connections.", len(app.grpc.open))
        out.add(f"{name}_total", "counter", "gRPC connections accepted.", app.grpc.accepted)
        out.add(f"{name}_refused_total", "counter", "gRPC connections over the limit.", app.grpc.refused)
        out.add(f"{name}_faults_total", "counter", "gRPC connections ended for what they sent.", app.grpc.faults)
    if app.tls:
        said = "TLS handshakes begun; where fewer connections than that were accepted, the others failed."
        out.add("calibrant_tls_handshakes_total", "counter", said, sum(held.begun for held in app.tls))
    if (shipping := app.control.shipping) is not None:
        what, name = {"address": shipping.address}, "calibrant_log_parts"
        out.add(f"{name}_sent_total", "counter", "Closed parts of the log that were sent.", shipping.sent, what)
        out.add(f"{name}_failures_total", "counter", "Tries that the storage did not take.", shipping.failures, what)
        out.add(f"{name}_lost_total", "counter", "Parts dropped before they were sent.", shipping.lost, what)
    if lifecycle is not None:
        out.add("calibrant_model_loads_total", "counter", "Models loaded after the start.", lifecycle.reloads)
        out.add("calibrant_model_load_failures_total", "counter", "Loads that failed.", lifecycle.failures)
        out.add(
            "calibrant_model_refusals_total",
            "counter",
            "Files refused for their golden rows, inputs or classes.",
            lifecycle.refusals,
        )
        out.add("calibrant_models_put_away_total", "counter", "Models put away to save memory.", lifecycle.put_away)
        for each in lifecycle.remote:
            what = {"address": each.address}
            help_ = "Looks at which the storage did not answer."
            out.add("calibrant_storage_failures_total", "counter", help_, each.failures, what)
        for name, version in sorted(lifecycle.missing):
            what = {"model": name, "version": version}
            out.add("calibrant_model_file_missing", "gauge", "1 while a served model's file is gone.", 1, what)
    out.add(
        "calibrant_models_loading", "gauge", "Models still to be loaded at the start.", app.control.repository.starting
    )
    for row in app.control.repository.index():
        state = float(row["state"] == "READY")
        what = {"model": row["name"], "version": row["version"]}
        out.add("calibrant_model_ready", "gauge", "1 while the model is in memory.", state, what)
    _canaries(out, app)
    for model in app.control.repository.all():
        _model(out, model, {"model": model.name, "version": model.version})
        labels = {"model": model.name, "version": model.version}
        if model.monitor is not None:
            _log_lost(out, model.monitor.lost, labels)
        if (report := reports.get(id(model.monitor))) is not None:
            monitored(out, report, labels)
    for (method, code), count in sorted(app.grpc_calls.items()):
        out.add(
            "calibrant_grpc_requests_total", "counter", "gRPC answers by code.", count, {"method": method, "code": code}
        )


def _canaries(out: Exposition, app: Application) -> None:
    found = app.control.canaries
    if found is None:
        return
    for name, canary in sorted(app.control.repository.canaries.items()):
        what = {"model": name, "version": canary.version}
        out.add("calibrant_canary_share", "gauge", "Of the requests that name no version.", canary.share, what)
    for state, count in found.counts.items():
        what = {"decision": state}
        out.add("calibrant_canary_decisions_total", "counter", "Canaries decided since the start.", count, what)


def _model(out: Exposition, model: Model, labels: dict[str, str]) -> None:
    own, counts, name = model.statistics, model.batcher.counts, "calibrant_model"
    for outcome, value in (
        ("ok", own.success),
        ("failed", own.fail),
        ("cancelled", own.cancelled),
        ("turned_away", own.turned_away),
    ):
        out.add(f"{name}_requests_total", "counter", "Requests by outcome.", value, {**labels, "outcome": outcome})
    out.add(f"{name}_rows_total", "counter", "Rows run.", counts.rows, labels)
    out.add(f"{name}_runs_total", "counter", "Batches run.", counts.executions, labels)
    out.add(f"{name}_reruns_total", "counter", "Requests rerun singly after a failed batch.", counts.reruns, labels)
    out.add(f"{name}_abstained_total", "counter", "Rows below the asked threshold.", own.abstained, labels)
    out.add(f"{name}_shadowed_total", "counter", "Copies run for comparison.", own.shadowed, labels)
    out.add(f"{name}_compute_seconds_total", "counter", "Time in onnxruntime.", counts.compute_ns / 1e9, labels)
    out.add(f"{name}_queue_seconds_total", "counter", "Time in the queue.", counts.queue_ns / 1e9, labels)
    out.add(f"{name}_queue_length", "gauge", "Requests waiting.", model.batcher.waiting, labels)
    out.add(
        f"{name}_predicted_wait_seconds", "gauge", "Until a new request runs.", model.batcher.predicted_wait, labels
    )
    out.add(f"{name}_batch_cap", "gauge", "Rows in one run at most.", model.batcher.cap, labels)
    out.add(f"{name}_loaded_time_seconds", "gauge", "When the file was loaded.", model.loaded, labels)
    out.histogram(f"{name}_latency_seconds", "From the last byte of a request to its answer.", own.latency, labels)


def _log_lost(out: Exposition, rows: int, labels: dict[str, str]) -> None:
    """Of every worker: each writes its own part of the log."""
    name = "calibrant_monitor_log_rows_lost_total"
    out.add(name, "counter", "Rows that the feedback log could not take.", rows, labels)


def monitored(out: Exposition, report: dict[str, Any], labels: dict[str, str]) -> None:
    name = "calibrant_monitor"
    out.add(f"{name}_rows_total", "counter", "Rows watched.", report["rows"], labels)
    out.add(f"{name}_labels_total", "counter", "Labels taken.", report["labels"], labels)
    out.add(
        f"{name}_chosen_labels", "gauge", "Rows with a label that counts in no figure.", report["chosen_labels"], labels
    )
    out.add(f"{name}_not_finite_total", "counter", "Rows whose answer was no number.", report["not_finite"], labels)
    for kind, alarm in report["alarms"].items():
        what = {**labels, "kind": kind}
        out.add(f"{name}_alarm", "gauge", "1 while the alarm is on.", float(alarm["on"]), what)
        evidence = alarm["log_evidence"]
        if evidence is not None and math.isfinite(evidence):
            out.add(f"{name}_log_evidence", "gauge", "An alarm at log_threshold.", evidence, what)
        out.add(f"{name}_log_threshold", "gauge", "Where log_evidence is an alarm.", alarm["log_threshold"], what)
    expected = report.get("expected_accuracy")
    if expected is not None:
        for bound in ("value", "low", "high"):
            out.add(
                f"{name}_expected_accuracy", "gauge", "Without labels.", expected[bound], {**labels, "bound": bound}
            )
    labelled = report.get("labelled")
    if labelled is not None:
        for figure in ("accuracy", "ece", "nll", "coverage"):
            for bound, value in (labelled[figure] or {}).items():  # the null value is a bound like low and high
                if value is not None:
                    out.add(f"{name}_{figure}", "gauge", "Of the window's labels.", value, {**labels, "bound": bound})
        error = labelled["expected_accuracy_error"]
        out.add(f"{name}_expected_accuracy_error", "gauge", "Expected - true accuracy, labelled rows.", error, labels)
    out.add(f"{name}_report_time_seconds", "gauge", "When this was computed.", time.time(), labels)
