"""How unusual a picture is among those by which a file was judged: by its answer, and by its look."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.metrics.ood_scores import energy
from calibrant.dashboard.draw import pictures
from calibrant.dashboard.folder.contents import opened
from calibrant.dashboard.numbers import rows
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.errors import CalibrantError
from calibrant.images.look import Looks, is_flat, look

MOST_PICTURES, FEWEST_PICTURES = 200, 30
MOST_ROWS = 100_000
LIMIT = 0.99  # a share above which the reader is warned; of the images judged by, one in a hundred lies there


@dataclass(frozen=True)
class Unusual:
    """Shares of the held-out images that are less unusual; None where there is nothing to compare with."""

    answer: float | None
    look: float | None
    flat: bool
    pictures: int  # that looks were compared with

    @property
    def warned(self) -> bool:
        return self.flat or max(self.answer or 0.0, self.look or 0.0) > LIMIT

    def sentence(self) -> str:
        """For people."""
        if self.flat:
            return "There is nothing to be seen on it: it is one flat colour."
        if self.look is not None and self.look > LIMIT:
            return (
                f"It looks more unusual than {_share(self.look)} of {self.pictures} images that the model was judged "
                "by: other light, colours or detail."
            )
        if self.answer is None:
            return ""
        return f"Its answer is more unusual than {_share(self.answer)} of the held-out images."


def _share(value: float) -> str:
    return "all" if value >= 1 else f"{100 * min(value, 0.999):.1f} %"


@lru_cache(4)
def known_scores(held_out: Scored) -> NDArray[np.float64]:
    """Energy scores of the held-out rows, the larger the more unusual, sorted."""
    file, found, n = opened(held_out.files), [], 0
    for batch in file.batches():
        found.append(-energy(batch.logits))
        n += len(batch)
        if n >= MOST_ROWS:
            break
    return np.sort(np.concatenate(found))


@lru_cache(4)
def known_looks(held_out: Scored, where: tuple[Path, ...]) -> Looks | None:
    """Of pictures spread over the held-out rows; None where too few may be shown."""
    table = rows.rows_of(held_out)
    order = np.random.default_rng(0).permutation(len(table.label))[: 2 * MOST_PICTURES]
    looks = []
    for row in rows.read(held_out, table, np.sort(order)):
        shown = pictures.find(where, row.id)
        try:
            if shown is not None:
                looks.append(look(pictures.whole(shown)))
        except CalibrantError:
            continue
        if len(looks) == MOST_PICTURES:
            break
    return Looks(looks) if len(looks) >= FEWEST_PICTURES else None


def judge(image: Any, score: float | None, held_out: Scored | None, where: tuple[Path, ...]) -> Unusual:
    """`score`: the energy score of the answer, None where the file has another."""
    values = look(image)
    if held_out is None:
        return Unusual(None, None, is_flat(values), 0)
    answer = None
    if score is not None:
        known = known_scores(held_out)
        answer = float(np.searchsorted(known, score, side="left") / len(known))
    looks = known_looks(held_out, where) if where else None
    if looks is None:
        return Unusual(answer, None, is_flat(values), 0)
    return Unusual(answer, looks.unusual(values), is_flat(values), len(looks.known))
