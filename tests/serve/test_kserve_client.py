"""kserve's REST client against the server, in a process of its own (it may not share one with tritonclient.grpc).

Runs where kserve is installed, or where CALIBRANT_KSERVE_PYTHON names an interpreter that has it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

PYTHON = os.environ.get("CALIBRANT_KSERVE_PYTHON") or (sys.executable if importlib.util.find_spec("kserve") else None)

CODE = """
import asyncio, json, sys
import numpy as np
from kserve import InferInput, InferRequest, InferenceRESTClient, RESTConfig

url, pixels = sys.argv[1], np.array(json.loads(sys.argv[2]), np.uint8)

async def main():
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=20))
    assert await client.is_server_live(url) is True
    assert await client.is_server_ready(url) is True
    assert await client.is_model_ready(url, "birds") is True
    found = []
    for binary in (False, True):
        tensor = InferInput("images", list(pixels.shape), "UINT8")
        tensor.set_data_from_numpy(pixels, binary_data=binary)
        request = InferRequest("birds", [tensor])
        reply = await client.infer(url, request, model_name="birds")
        found.append({o.name: o.as_numpy().tolist() for o in reply.outputs}["probabilities"])
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.mark.skipif(PYTHON is None, reason="kserve is not installed")
def test_kserves_client_gets_the_answer_in_json_and_binary(url: str, tiny: ModuleType) -> None:
    pixels = tiny.pictures(2)
    assert PYTHON is not None
    run = subprocess.run(
        [PYTHON, "-c", CODE, url, json.dumps(pixels.tolist())], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    for found in json.loads(run.stdout.splitlines()[-1]):
        np.testing.assert_allclose(np.array(found).reshape(2, 4), tiny.expected(pixels), atol=1e-6)
