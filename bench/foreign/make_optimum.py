"""The ViT that make_torch.py trained and saved, exported by optimum.

    python bench/foreign/make_optimum.py DIR

Needs an environment of its own: optimum, optimum-onnx, transformers before 5, huggingface_hub before 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from optimum.exporters.onnx.__main__ import main_export


def main() -> None:
    folder = Path(sys.argv[1])
    main_export(str(folder / "vit"), folder / "optimum", task="image-classification", do_validation=False)
    (folder / "optimum" / "model.onnx").replace(folder / "optimum.onnx")


if __name__ == "__main__":
    main()
