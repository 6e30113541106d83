"""The quadratic program of the weights of ensembles, solved slowly."""

import itertools

import numpy as np

from rs.statistics.ensemble_weights import variance


def by_enumeration(covariances, a):
    """Smallest objective over every support: on each the minimiser solves the KKT equations, if it
    is inside.
    """
    matrix = np.einsum("k,klm->lm", a, covariances)
    matrix = matrix / max(np.abs(matrix).max(), np.finfo(float).tiny)
    best = np.inf
    for size in range(1, len(matrix) + 1):
        for support in itertools.combinations(range(len(matrix)), size):
            part = matrix[np.ix_(support, support)]
            kkt = np.block(
                [[2 * part, -np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]]
            )
            w = np.linalg.lstsq(kkt, np.append(np.zeros(size), 1.0), rcond=None)[0][:size]
            if w.min() >= -1e-12 and w.sum() > 0:
                full = np.zeros(len(matrix))
                full[list(support)] = w.clip(min=0) / w.clip(min=0).sum()
                best = min(best, variance(full, covariances, a))
    return best
