"""Every page of the guide, walked: its commands and its Python run in its order, in a world of small pictures.

What is changed on the way is how long it takes (small networks and pictures, one epoch) and what a page leaves open
(DATA, FOLDER). A server loads and checks and ends: tests/test_tutorial.py keeps one running, as people do.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_writer import FeedbackWriter

from .conftest import command
from .pages import ROOT, Block, blocks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SMALL = {"resnet50": "test_resnet", "tf_efficientnet_lite0": "test_resnet", "vit_small_patch16_224": "test_vit"}
SIDE = {"test_resnet": "32", "test_vit": "64"}
OPEN = {"FILE": "pretrained.safetensors", "FEATS": "feats", "VAL": "val.parquet", "PRIOR": "uniform", "DIR": "birds"}


@dataclass(frozen=True)
class Walk:
    left_out: dict[str, str] = field(default_factory=dict)  # lines by how they begin, or "python 2": why not here
    swap: dict[str, str] = field(default_factory=dict)  # text that makes a line affordable or possible here
    ends: dict[str, int] = field(default_factory=dict)  # lines by how they begin: with another code than 0
    before: Callable[[list[Block]], None] = lambda _: None  # puts what the page takes for granted into the folder
    names: Callable[[], dict[str, Any]] = dict  # what its Python takes for granted


def rows(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, 200)
    return rng.normal(size=(200, 5)) + 5 * np.eye(5)[labels], labels


def of_calibration() -> dict[str, Any]:
    (logits, labels), (new, _) = rows(), rows(1)
    p = np.exp(new) / np.exp(new).sum(1, keepdims=True)
    return {
        "logits": logits, "labels": labels, "new_logits": new, "new_probs": p, "train_counts": [40, 30, 20, 10, 5],
        "probs": p, "probs_before": p, "probs_after": p**0.9 / (p**0.9).sum(1, keepdims=True),
    }  # fmt: skip


def of_scikit_learn() -> dict[str, Any]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import LinearSVC

    x, y = load_digits(return_X_y=True)
    return {"LinearSVC": LinearSVC, "cross_val_score": cross_val_score, "x": x[:600], "y": y[:600], "new": x[600:]}


def of_a_loop() -> dict[str, Any]:
    import torch
    from torch import nn

    import calibrant
    from calibrant.images.preprocessing import Preprocessing

    (val, labels), (test, truth) = rows(), rows(1)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 5))
    return {
        "calibrant": calibrant, "model": model, "class_names": list("abcde"), "torch": torch,
        "preprocessing": Preprocessing((32, 32), 32), "val_logits": val, "val_labels": labels,
        "test_logits": test, "test_labels": truth,
    }  # fmt: skip


def of_reduced_tokens() -> dict[str, Any]:
    import torch

    return {"images": torch.randn(1, 3, 224, 224), "shown": np.zeros((224, 224, 3), np.uint8), "path": "kept.png"}


def foreign(_: list[Block]) -> None:
    import torch

    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 5)).eval()
    torch.onnx.export(network, (torch.zeros(1, 3, 224, 224),), "resnet.onnx", dynamo=False, input_names=["images"])
    Path("names.txt").write_text("\n".join("01234") + "\n")
    Path("birds.onnx").unlink()


def edits(_: list[Block]) -> None:
    Path("spring.json").write_text(json.dumps({str(n): 0.2 for n in range(5)}))
    Path("german.json").write_text(json.dumps(["null", "eins", "zwei", "drei", "vier"]))
    from calibrant.calibration import fit

    fit("vector", *rows()).save("new-calibrator.json")


def plugin(found: list[Block]) -> None:
    example = (ROOT / "tests/plugin_example.py").read_text()
    tiny, colours = example.partition("class Tiny")[2].partition("\n\n\n@")[0], example.partition("class Colours")[2]
    stands = colours.partition("\n\n\n@")[0].replace("def __init__(self, rows, seed):", "def __init__(self, split):")
    stands = stands.replace("range(rows)", "range(60)").replace("self.seed = seed", "self.seed = len(split)")
    parts = [
        "import numpy as np\nfrom torch import nn\n", "class Tiny" + tiny.replace("self.last", "self.fc"),
        "class Leaves" + stands, "def add_noise(picture, rng):\n    return picture\n",
        next(b.text for b in found if b.kind == "python"),
    ]  # fmt: skip
    Path("mine.py").write_text("\n\n".join(parts))


def study(found: list[Block]) -> None:
    text = next(b.text for b in found if b.kind == "toml")
    text = text.replace('name = "resnet18"\npretrained = true', 'name = "test_resnet"\nimage_size = 32')
    Path("my-study.toml").write_text(text.replace("images = 1000 ", "images = 60 "))


def sweep(found: list[Block]) -> None:
    first = next(b.text for b in found if b.kind == "toml")
    Path("longtail.toml").write_text(
        first.replace("seeds = [0, 1, 2, 3, 4]", "seeds = [0, 1]").replace("data.val_per_class = 5\n", "")
    )
    x, y = rows()
    np.savez("table.npz", features=x.astype(np.float32), labels=y)


def search(_: list[Block]) -> None:
    Path("cub.toml").write_text(
        '[data]\npath = "birds"\n[model]\nname = "test_resnet"\nimage_size = 32\n'
        '[loss]\nname = "vace"\n[schedule]\nepochs = 1\n'
    )


def table(_: list[Block]) -> None:
    for name in ("before", "after"):
        shutil.copy("test.parquet", f"{name}.parquet")
    x, y = rows()
    np.savez("preds.npz", logits=x, labels=y)
    head = ",".join(f"p_{name}" for name in "abcde") + ",truth,patient\n"
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    lines = [
        ",".join(f"{v:.9f}" for v in row) + f",{'abcde'[k]},{n // 4}\n"
        for n, (row, k) in enumerate(zip(p, y, strict=True))
    ]
    Path("table.csv").write_text(head + "".join(lines))
    Path("val.csv").write_text(
        "l0,l1,l2,l3,l4,label\n" + "".join(",".join(map(str, [*r, k])) + "\n" for r, k in zip(x, y, strict=True))
    )


def served(found: list[Block]) -> None:
    Path("serve.toml").write_text(next(b.text for b in found if b.kind == "toml"))
    picture = next(Path("birds/test").glob("*/*.png"))
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(picture, name)
    command(["shards", "--data", "birds", "--out", "shards"])
    for version, name in ((1, "birds"), (1, "trees")):
        Path(f"models/{name}/{version}").mkdir(parents=True)
        shutil.copy("birds.onnx", f"models/{name}/{version}/model.onnx")


def sites(_: list[Block]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table("val.parquet")
    names = pa.array(["berlin", "ulm"] * len(rows))[: len(rows)]
    pq.write_table(rows.append_column("group_site", names), "val.parquet")


def of_a_log(_: list[Block]) -> None:
    shutil.copy("test.parquet", "served.parquet")


def served_before(_: list[Block]) -> None:
    writer = FeedbackWriter("log")
    writer.predictions(Model("birds", "1", "ab", ("auk", "crane")), ["order-17"], [1.0], np.zeros((1, 2), np.float32))
    writer.close()


HERE = Walk()
WALKS = {
    "README.md": Walk({"calibrant fit": "test_tutorial.py", "calibrant serve": "test_tutorial.py"}),
    "adopt.md": Walk(before=foreign),
    "calibration.md": Walk(before=sites, names=of_calibration),
    "dashboard.md": HERE,
    "data.md": HERE,
    "export.md": Walk(before=edits),
    "first-model.md": HERE,
    "fit.md": Walk({"calibrant fit": "test_tutorial.py, test_readme.py"}),
    "heads.md": Walk(before=sweep),
    "losses.md": HERE,
    "metrics.md": Walk(names=of_calibration),
    "monitoring.md": Walk(before=served_before),
    "notebook.md": Walk(names=of_scikit_learn),
    "plugins.md": Walk(
        {
            "calibrant train --model hf": "models from elsewhere: train/model/test_foreign.py",
            "calibrant train --model local-dir": "the same",
            "python 1": "is mine.py",
            "python 3": "Lightning and transformers: api/test_tracking.py",
        },
        swap={'save_run("runs/mine"': 'save_run("runs/loop"'},
        before=plugin,
        names=of_a_loop,
    ),
    "predictions.md": Walk({} if find_spec("polars") else {"python 2": "no polars here"}, before=table),
    "scaling.md": HERE,
    "serving.md": Walk(
        {
            "calibrant bench-serve http": "another machine",
            "calibrant tune": "commands/tune",
            "calibrant serve --config tuned": "what tune writes",
            "calibrant serve s3:": "serve/models/test_remote_folder.py",
            "calibrant serve model.onnx --engine ray": "serve/processes/test_ray.py",
            "calibrant predict model.onnx --data shards --engine ray": "serve/batch/test_ray_predict.py",
            "calibrant evaluate predictions/ --engine ray": "calibration/statistics/test_on_ray.py",
            "calibrant predict s3:": "commands/test_predict.py",
            "calibrant evaluate s3:": "commands/test_predict.py",
            "python 2": "serve/test_triton_client.py",
        },
        before=served,
    ),
    "studies.md": Walk(
        {"calibrant study fedlas": "an hour"}, swap={"--workers 2": "--scale tiny --seeds 2"}, before=study
    ),
    "token-reduction.md": Walk(
        {"python 3": "a minute: train/vit/test_deploy.py"},
        swap={"--token-reduction evit": "--token-reduction evit --set model.token_reduction.locations=[1,3,4]"},
        names=of_reduced_tokens,
    ),
    "training.md": Walk(
        {
            "calibrant train --recipe": "CUB and a ViT-B: train/test_recipe.py",
            "calibrant train cub.toml --engine ray": "a cluster: train/machines/test_ray_train.py",
        },
        swap={
            "=0.25,0.5,1": "=0.25,1",
            "--trials 12": "--trials 2",
            '"out": "runs/vace"': '"out": "runs/api", "model": {"name": "test_resnet", "image_size": 32}',
            '"loss": "vace"': '"loss": "vace", "schedule": {"epochs": 1}',
        },
        before=search,
    ),
    "verdict.md": Walk(
        before=of_a_log, ends={"calibrant evaluate test.parquet --calibrator calibrator.json --require": 1}
    ),
    "web.md": Walk({"calibrant export web": "npm: export/web"}),
}


def affordable(words: list[str]) -> list[str]:
    """The same line for a small network, small pictures and one epoch."""
    words = [OPEN.get(SMALL.get(word, word), SMALL.get(word, word)) for word in words]
    first = words[0]
    if first in ("train", "features") and "--resume" not in words:
        network = words[words.index("--model") + 1] if "--model" in words else "test_resnet"
        words += [] if "--model" in words else ["--model", network]
        words += ["--image-size", SIDE[network]] if network in SIDE else []
        if first == "features" and "--weights" not in words:
            words += ["--weights", "pretrained.safetensors"]
    if first == "train" and "--resume" not in words:
        words += ["--overwrite"]
    if first == "train" and "--epochs" in words:
        words[words.index("--epochs") + 1] = "2" if "--resume" in words else "1"
    elif first == "train" and "--resume" not in words:
        words += ["--epochs", "1"]
    if first == "serve" and "--check" not in words:
        words += ["--check"]
    if first == "bench-serve":
        words += ["--seconds", "0.5", "--clients", "2"]
    return words


@pytest.mark.parametrize("page", WALKS)
def test_a_page_runs_in_its_order(page: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk, found = WALKS[page], list(blocks(ROOT / "docs" / page))
    shutil.copytree(world, tmp_path / "world")
    monkeypatch.chdir(tmp_path / "world")
    walk.before(found)
    names, pythons, unused = walk.names(), 0, {*walk.left_out, *walk.swap, *walk.ends}
    for block in found:
        pythons += block.kind == "python"
        key = f"python {pythons}" if block.kind == "python" else block.text
        left = {start for start in walk.left_out if key.startswith(start)}
        ends = {start for start in walk.ends if key.startswith(start)}
        unused -= left | ends | {old for old in walk.swap if old in block.text}
        if left or block.kind == "toml":
            continue
        for old, new in walk.swap.items():
            block = Block(block.kind, block.text.replace(old, new))
        if block.kind == "python":
            exec(compile(block.text, f"docs/{page}, Python block {pythons}", "exec"), names)  # noqa: S102
        elif block.words[0] == "dashboard":
            assert all(Path(word).exists() for word in block.words[1:])
        else:
            command(affordable(block.words), ends=walk.ends[ends.pop()] if ends else 0)
    assert not unused, "no longer on the page"


def test_every_page_with_something_to_run_is_walked() -> None:
    pages = {p.name for p in (ROOT / "docs").glob("*.md") if any(b.kind != "toml" for b in blocks(p))}
    assert pages == set(WALKS) | {"tutorial.md"}  # that one: test_tutorial.py


def test_the_first_model_is_asked_for_under_the_name_that_it_is_served_as() -> None:
    text = (ROOT / "docs" / "first-model.md").read_text()
    (served,) = re.findall(r"calibrant serve (\w+)=birds\.onnx", text)
    assert f"/v2/models/{served}\n" in text
