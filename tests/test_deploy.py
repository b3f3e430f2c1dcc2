"""What lies in deploy/, by the tools that read it where they are installed, and by what our server really has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant.commands.predict import predict
from calibrant.config import build
from calibrant.serve.cli import serve
from calibrant.serve.config_file import read_config_file
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


def test_the_settings_can_be_tried_on_a_folder_of_one_s_own(tmp_path: Path) -> None:
    """As docs/deploy.md has it: the folder that the settings name is that of a container."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    (words,) = re.findall(r"`calibrant (serve models/ [^`]*--check)`", text)
    (tmp_path / "models").mkdir()
    (tmp_path / "deploy").symlink_to(DEPLOY)
    command, environment = [sys.executable, "-m", "calibrant", *words.split()], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "This would start." in done.stdout
