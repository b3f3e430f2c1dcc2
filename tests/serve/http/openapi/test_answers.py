"""What the document promises, and what a real server answers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import jsonschema
import pytest
from PIL import Image

from calibrant.serve.http.openapi.answers import SCHEMAS
from calibrant.serve.http.openapi.document import document
from calibrant.serve.processes.background import running

WHOLE = document(["birds"], admin=True, monitored=True, guarded=True)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_every_schema_is_one_and_every_reference_leads_to_it() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    used = {text.rpartition("/")[2] for text in _references(WHOLE)}
    assert used - SCHEMAS.keys() == set()
    assert SCHEMAS.keys() - used == set()


def test_every_operation_has_an_id_of_its_own() -> None:
    ids = [operation["operationId"] for verbs in WHOLE["paths"].values() for operation in verbs.values()]
    assert len(ids) == len(set(ids))
    assert all(id_.isidentifier() for id_ in ids)
    assert {"infer", "infer_of_version", "predict", "predict_of_model", "statistics", "metadata"} <= set(ids)


def test_every_answer_says_what_it_is() -> None:
    for verbs in WHOLE["paths"].values():
        for operation in verbs.values():
            (schema, *_) = [kind["schema"] for kind in operation["responses"]["200"]["content"].values()]
            assert schema, operation["operationId"]


class Checked:
    """Holds each answer to the schema of its address in the server's own document."""

    def __init__(self, client: httpx.Client) -> None:
        self.client, self.document = client, client.get("/openapi.json").json()

    def __call__(self, verb: str, path: str, pattern: str, **sent: Any) -> Any:
        reply = self.client.request(verb, path, **sent)
        answers = self.document["paths"][pattern][verb.lower()]["responses"]
        kind = answers["200" if reply.status_code == 200 else "default"]["content"]["application/json"]["schema"]
        schema = {**kind, "components": self.document["components"]}
        jsonschema.Draft202012Validator(schema).validate(reply.json())
        assert list(self._untold(kind, reply.json())) == [], path
        return reply

    def _untold(self, schema: Any, value: Any, where: str = "") -> Iterator[str]:
        """Keys of the answer that the schema does not know."""
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        for choice in schema.get("anyOf", ()):
            if value is not None and choice.get("type") != "null":
                yield from self._untold(choice, value, where)
        if isinstance(value, dict) and "properties" in schema:
            for key, inner in value.items():
                if key not in schema["properties"]:
                    yield f"{where}/{key}"
                else:
                    yield from self._untold(schema["properties"][key], inner, f"{where}/{key}")
        elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
            for key, inner in value.items():
                yield from self._untold(schema["additionalProperties"], inner, f"{where}/{key}")
        elif isinstance(value, list) and "items" in schema:
            for inner in value:
                yield from self._untold(schema["items"], inner, f"{where}[]")


@pytest.mark.slow  # 5 s
def test_answers_of_a_server_are_what_its_document_promises(tmp_path: Path, tiny: ModuleType) -> None:
    files = [f"birds@{v}={tiny.write(tmp_path / f'{v}.onnx')}" for v in ("1", "2")]
    arguments = ["--threads", "1", "--admin", "--monitor", "--canary", "birds@2=0.5", "--canary-auto"]
    picture = io.BytesIO()
    Image.new("RGB", (20, 20), (200, 20, 20)).save(picture, "png")
    pixels = tiny.pictures(1)
    tensor = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    model, versioned = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
    with running(*files, arguments=arguments) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        ask = Checked(client)
        for path in ("/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/stats", "/openapi.json"):
            assert ask("GET", path, path).status_code == 200
        ids = []
        for _ in range(3):
            ids.append(ask("POST", "/v2/models/birds/infer", model + "/infer", json={"inputs": [tensor]}).json()["id"])
        for path, pattern in (("/predict", "/predict"), ("/v2/models/birds/predict", model + "/predict")):
            asked = {"content": picture.getvalue(), "params": {"top_k": 2, "coverage": 0.9, "ood": "true"}}
            assert ask("POST", path, pattern, **asked).status_code == 200
        labels = {"labels": [{"id": id_, "label": "crane"} for id_ in ids]}
        assert ask("POST", "/v2/models/birds/feedback", model + "/feedback", json=labels).json()["accepted"] == 3
        for what in ("", "/ready", "/config", "/stats", "/monitor"):
            assert ask("GET", "/v2/models/birds" + what, model + what).status_code == 200
            assert ask("GET", "/v2/models/birds/versions/1" + what, versioned + what).status_code == 200
        assert ask("POST", "/v2/repository/index", "/v2/repository/index").status_code == 200
        canary = "/v2/repository/models/{name}/canary"
        assert ask("GET", canary.format(name="birds"), canary).json()["canary"]["version"] == "2"
        decided = ask("POST", f"{canary.format(name='birds')}/decision", f"{canary}/decision",
                      json={"decision": "roll back"})  # fmt: skip
        assert decided.json()["decided"][0]["state"] == "rolled back"
        for verb in ("unload", "load"):
            pattern = "/v2/repository/models/{name}/" + verb
            assert ask("POST", pattern.format(name="birds"), pattern).status_code == 200
        for path, pattern in (("/v2/models/brids", model), ("/v2/models/birds/versions/9", versioned)):
            assert ask("GET", path, pattern).status_code == 404
        bad = ask("POST", "/v2/models/birds/infer", model + "/infer", content=json.dumps({"inputs": 7}))
        assert bad.status_code == 400
