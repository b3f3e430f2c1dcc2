"""Which accuracies could be behind the counts of bins: empirical Bayes with a beta-binomial.

Cell b claims p_b and has k_b hits among n_b rows. Its accuracy is A_b ~ Beta(m_b phi, (1 - m_b) phi) with
m_b = sigmoid(alpha + beta logit p_b), a curve that all cells share, so that a cell of few rows is judged by the others.
alpha ~ N(0, 1) and beta ~ N(1, 1): without evidence the model is taken to be calibrated. For each phi of a grid the
curve is fitted by Newton steps with the weights of a beta-binomial, 1 / (1 + (n - 1) / (phi + 1)); the grid is weighed
by likelihood (Laplace). A draw is a phi, a curve, and A_b ~ Beta(m phi + k, (1 - m) phi + n - k): always a share, and a
cell without a hit is nothing special.

Logarithms of the gamma function are our own (Stirling): the server computes intervals without scipy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_PHI = np.geomspace(3.0, 1e5, 12)
_STEPS, _LONGEST = 12, 2.0  # Newton steps, and how far one may go
_EDGE = 1e-7  # of a claim: where its logit is cut
_PRIOR = np.array([0.0, 1.0])  # alpha, beta of the identity
_CURVES = 4  # drawn for each that is kept


@dataclass(frozen=True)
class Curve:
    """Accuracy as a function of the claim, for each phi of the grid: its weight, (alpha, beta) and their covariance."""

    weight: Vector  # (phi,)
    mean: Vector  # (phi, 2)
    root: Vector  # (phi, 2, 2), lower triangle with root @ root.T the covariance


def accuracies(
    claim: Vector, hits: Vector, rows: Vector, draws: int, rng: np.random.Generator, moved: Vector | None = None
) -> Vector:
    """Plausible true accuracies of the cells, (draws, cells). `moved`: of the claims' logits, in each draw."""
    curve = fit_curve(claim, hits, rows)
    chosen = rng.choice(len(_PHI), size=draws, p=curve.weight)
    theta = curve.mean[chosen] + np.einsum("dij,dj->di", curve.root[chosen], rng.standard_normal((draws, 2)))
    x = _logit(claim) if moved is None else _logit(claim) + moved
    mean = _sigmoid(theta[:, :1] + theta[:, 1:] * x)
    phi = _PHI[chosen][:, None]
    drawn: Vector = rng.beta(mean * phi + hits, (1.0 - mean) * phi + (rows - hits))
    return drawn


def weighed_accuracies(claim: Vector, hits: Vector, rows: Vector, draws: int, rng: np.random.Generator) -> Vector:
    """The same with the curves weighed by their likelihood: at claims near 0 or 1 it is far from a normal law."""
    curve, x = fit_curve(claim, hits, rows), _logit(claim)
    chosen = rng.choice(len(_PHI), size=_CURVES * draws, p=curve.weight)
    normal = rng.standard_normal((len(chosen), 2))
    theta = curve.mean[chosen] + np.einsum("dij,dj->di", curve.root[chosen], normal)
    mean, phi = _sigmoid(theta[:, :1] + theta[:, 1:] * x), _PHI[chosen][:, None]
    weight = _log_likelihood(mean * phi, (1.0 - mean) * phi, hits, rows - hits)
    weight -= 0.5 * ((theta - _PRIOR) ** 2).sum(axis=1)
    # Over the density that they were drawn with: the weight of phi, and the normal law.
    weight -= np.log(curve.weight[chosen]) - 0.5 * (normal**2).sum(axis=1)
    weight += np.log(curve.root[chosen, 0, 0] * curve.root[chosen, 1, 1])
    share = np.exp(weight - weight.max())
    kept = rng.choice(len(chosen), size=draws, p=share / share.sum())
    mean, phi = mean[kept], phi[kept]
    drawn: Vector = rng.beta(mean * phi + hits, (1.0 - mean) * phi + (rows - hits))
    return drawn


def fit_curve(claim: Vector, hits: Vector, rows: Vector) -> Curve:
    """Curve of (cells,) mean claims, hits and rows; hits need not be whole."""
    x, phi = _logit(claim), _PHI[:, None]
    weight = 1.0 / (1.0 + np.maximum(rows - 1.0, 0.0) / (phi + 1.0))  # (phi, cells)
    weighted_rows, weighted_hits = weight * rows, weight * hits
    theta = np.tile(_PRIOR, (len(_PHI), 1))
    for _ in range(_STEPS):
        m = _sigmoid(theta[:, :1] + theta[:, 1:] * x)
        residual, curvature = weighted_hits - weighted_rows * m, weighted_rows * m * (1.0 - m)
        slope = np.stack([residual.sum(axis=1), residual @ x], axis=1) - (theta - _PRIOR)
        corner, cross, last = curvature.sum(axis=1) + 1.0, curvature @ x, curvature @ (x * x) + 1.0
        determinant = corner * last - cross * cross
        covariance = np.array([[last, -cross], [-cross, corner]]).transpose(2, 0, 1) / determinant[:, None, None]
        step = np.einsum("pij,pj->pi", covariance, slope)
        size = np.abs(step).max(axis=1)
        theta += step * np.minimum(1.0, _LONGEST / np.maximum(size, 1e-300))[:, None]
        if float(size.max()) < 1e-4:
            break
    m = _sigmoid(theta[:, :1] + theta[:, 1:] * x)
    evidence = _log_likelihood(m * phi, (1.0 - m) * phi, hits, rows - hits)
    evidence -= 0.5 * (((theta - _PRIOR) ** 2).sum(axis=1) + np.log(determinant))
    share = np.exp(evidence - evidence.max())
    return Curve(share / share.sum(), theta, np.linalg.cholesky(covariance))


def log_gamma(x: Vector) -> Vector:
    """log Gamma(x) for x > 0, to 1e-10 of it: Stirling's series at x + 6, and back by the recurrence."""
    y = x + 6.0
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * y * y)) / (y * y)) / (y * y)) / y
    product = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0)
    out: Vector = (y - 0.5) * np.log(y) - y + 0.5 * np.log(2 * np.pi) + series - np.log(product)
    return out


def _log_likelihood(a: Vector, b: Vector, hits: Vector, misses: Vector) -> Vector:
    """Sums over cells of log B(a + k, b + n - k) - log B(a, b), whose a + b is one number for each row of a and b."""
    total = (a + b)[:, :1]
    cells = log_gamma(a + hits) - log_gamma(a) + log_gamma(b + misses) - log_gamma(b)
    size, count = np.unique(hits + misses, return_counts=True)
    out: Vector = cells.sum(axis=1) - (log_gamma(total + size) - log_gamma(total)) @ count
    return out


def _logit(p: Vector) -> Vector:
    inside = np.clip(p, _EDGE, 1.0 - _EDGE)
    out: Vector = np.log(inside) - np.log1p(-inside)
    return out


def _sigmoid(x: Vector) -> Vector:
    # Kept off 0 and 1: a beta distribution needs both parts.
    out: Vector = 1.0 / (1.0 + np.exp(-np.clip(x, -20.0, 20.0)))
    return out
