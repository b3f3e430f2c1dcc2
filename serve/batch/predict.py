"""`calibrant predict MODEL.onnx`: a folder of images, or shards of them, through a deployed file.

Threads decode while the session runs, answers come in the order of the images, and finished parts are kept beside the
output until all are there, so that an interrupted run goes on where it was when it is started again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

from calibrant import atomic
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import ModelError
from calibrant.progress import bar
from calibrant.remote.storage import here, is_address
from calibrant.serve.batch.number_rows import predict_rows
from calibrant.serve.batch.order import Bad, OnBad, Order, Part, Span, Workplace, source_of
from calibrant.serve.batch.parts_folder import PartsFolder, key_of
from calibrant.serve.engine.providers import available_cores

log = logging.getLogger(__name__)

Engine = Literal["calibrant", "ray"]
PART = 4096  # images; what an interruption can cost
RAY_PART = 256  # a part is in memory as a whole there, and they are shared out


def predict_model(
    model: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    split: str = "test",
    batch_size: int | None = None,
    features: bool = False,
    on_bad_image: OnBad = "fail",
    workers: int | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    part: int | None = None,
    engine: Engine = "calibrant",
    actors: int | None = None,
) -> Path:
    """Writes the predictions of a deployed file for images in any layout that training reads; gives the file.

    The logits written are the model's own, so that a calibrator can be fitted on them: the prior term is always taken
    off, and so is a calibrator that is a diagonal map. Where it is another map its outcome is written, and
    `Source.model["applied"]` names it. Labels that are no classes of the model stand in the column `label_name`. Images
    that cannot be read stop the run by name, or are left out and listed in `<out>.bad-images.txt`.

    `model` and `data` may be addresses of object storage, which are copied to the machines that read them.
    `engine="ray"` shares the parts out among `actors` processes of Ray, on one machine or many.
    """
    out = Path(out)
    if not OnnxFile.open(here(model)).card().input.pictures:
        return predict_rows(
            here(model), here(data), out, split=split, features=features, providers=providers, threads=threads
        )
    paths = [given if is_address(given) else Path(given) for given in (model, data)]
    if engine == "ray":  # whose processes have working directories of their own
        paths = [path.resolve() if isinstance(path, Path) else path for path in paths]
    order = Order(paths[0], paths[1], split, batch_size or 32, features, on_bad_image)
    work = Workplace.of(order, threads=threads, providers=providers)
    classifier, images, sha256 = work.classifier, work.images, work.sha256
    part = part or (RAY_PART if engine == "ray" else PART)
    total = len(images)
    if features and "features" not in classifier.session.outputs:
        raise ModelError("has no output `features`", where=model, fix="export it with --features")
    source = source_of(classifier)
    source = replace(source, model={**source.model, "onnx_sha256": sha256})
    key = key_of(sha256, images, split, features, on_bad_image, part)
    parts = PartsFolder.beside(out, source, split=split, total=total, part=part, key=key)
    left = parts.left
    shown = bar(what=f"predict {split}", total=total, unit="img")
    shown.update(total - sum(stop - start for start, stop in left))
    if engine == "ray":
        from calibrant.serve.batch.ray_predict import predict_spans

        def keep(span: Span, found: Part) -> None:
            with parts.writing(span, found.bad) as append:
                for rows in found.rows:
                    append(rows)
            shown.update(span[1] - span[0])

        predict_spans(work, left, actors, keep=keep)
    else:
        with ThreadPoolExecutor(workers or available_cores(), "decode") as pool:
            for span in left:
                run = work.run(pool)
                with parts.writing(span, run.bad) as append:
                    for rows in run.over(span):
                        append(rows)
                        shown.update(len(rows.ids))
    shown.close()
    bad = parts.bad()
    parts.join(out, features=features)
    _list_bad(out, bad, total)
    return out


def _line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t").encode(errors="backslashreplace").decode()


def _list_bad(out: Path, bad: Sequence[Bad], total: int) -> None:
    listing = out.with_name(out.name + ".bad-images.txt")
    listing.unlink(missing_ok=True)
    if bad:
        log.warning("%d of %d images could not be read; they are listed in %s", len(bad), total, listing)
        atomic.write_text(listing, "".join(f"{_line(b.id)}\t{_line(b.why)}\n" for b in bad))
