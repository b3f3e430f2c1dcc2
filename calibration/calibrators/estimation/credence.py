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
# Of a temperature alone, and of maps around it under a penalty of these strengths.
STRENGTHS = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
FEWER = (30.0, 3.0, 0.3)  # where a fit takes long
_PRIOR = {30.0: 0.25, 10.0: 0.25, 3.0: 0.15, 1.0: 0.08, 0.3: 0.04, 0.1: 0.03}
_OF_TEMPERATURE = 0.2


def prior_of(strengths: Sequence[float]) -> Vector:
    """Of the temperature alone first, then of each strength; one that is left out gives its share to its neighbours."""
    shares = np.zeros(len(strengths))
    for known, share in _PRIOR.items():
        shares[int(np.argmin(np.abs(np.log(np.asarray(strengths) / known))))] += share
    return np.append(_OF_TEMPERATURE, shares)


def credences(prior: Vector, gains: Vector, rows: int, evidence: Vector | None = None) -> Vector:
    """w_j above; `gains` and `evidence` (its logarithm) are 0 for the first."""
    scores = (
        np.log(prior / prior.sum()) + rows / (2 * rows + 100) * gains + 0.5 * (gains if evidence is None else evidence)
    )
    w: Vector = np.exp(scores - scores.max())
    w /= w.sum()
    return w
