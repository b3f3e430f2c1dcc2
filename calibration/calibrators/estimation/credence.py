"""How much each of several maps is believed, from a prior, cross-validated losses and evidence.

    w_j  proportional to  pi_j E_j^(1/2) exp(h G_j),      h = n / (2 n + 100)

G_j: nats that map j gains over the first one in the sum of the n rows, each predicted by a map fitted on others. E_j:
its evidence against the first (`evidence.py`), exp(G_j) where that is not had. Evidence alone prefers stronger
penalties than predict best, since no map is the truth; cross-validation alone is noisy. (Akaike weights with
cross-validation in the place of the criterion: Burnham and Anderson 2002; "pseudo-BMA": Yao et al. 2018. Differs: the
evidence, and h, which they replace by a bootstrap.) Prior, exponent and h are the best of some
34 rules on twelve simulated sets of 10, 20 and 30 classes (three draws each, `net*` of `bench/calibrators.py`), so what
they gain there is flattered; the networks of the tables had no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
# What is believed before any row is seen: of a temperature alone, and, in proportion, of maps around it under a penalty
# of each strength. `strengths.py` and `auto` read it here.
OF_TEMPERATURE = 0.2
PRIOR = {30.0: 0.25, 10.0: 0.25, 3.0: 0.15, 1.0: 0.08, 0.3: 0.04, 0.1: 0.03, 0.03: 0.02, 0.01: 0.01}
STRENGTHS = tuple(PRIOR)
FEWER = (10.0, 1.0, 0.1, 0.01)  # where a fit takes long
_HOPELESS = 10.0  # nats behind another strength in the sum of the rows: weaker ones are not tried


def prior_of(strengths: Sequence[float]) -> Vector:
    """Of the temperature alone first, then of each strength; one that is left out gives its share to its neighbour."""
    shares = np.zeros(len(strengths))
    for known, share in PRIOR.items():
        shares[int(np.argmin(np.abs(np.log(np.asarray(strengths) / known))))] += share
    return np.append(OF_TEMPERATURE, shares * (1 - OF_TEMPERATURE) / shares.sum())


def hopeless(gains: Sequence[float]) -> bool:
    """Whether a path from strong to weak penalties has passed its best so far that what follows cannot count.

    `gains`: of the strengths tried, in nats of the sum of all rows.
    """
    return len(gains) > 1 and gains[-1] < max(gains) - _HOPELESS


def credences(prior: Vector, gains: Vector, rows: int, evidence: Vector | None = None) -> Vector:
    """w_j above; `gains` and `evidence` (its logarithm) are 0 for the first."""
    scores = (
        np.log(prior / prior.sum()) + rows / (2 * rows + 100) * gains + 0.5 * (gains if evidence is None else evidence)
    )
    w: Vector = np.exp(scores - scores.max())
    w /= w.sum()
    return w
