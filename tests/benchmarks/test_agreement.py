"""What engines say of the same draws (``benchmarks.agreement``)."""

import numpy as np
import pytest
import torch

from benchmarks.agreement import said
from rs.ensemble.rules import Ensemble, Polytope
from rs.smoothing.classifier import SmoothedClassifier
from rs.statistics.certificate import ABSTAIN
from tests.support.helpers import Constant, tiny_images

pytestmark = pytest.mark.trust_only


def test_votes_for_no_class_are_no_class_of_their_own():
    """Two members that never agree, and weights that let either decide: no draw has a class."""
    base = Ensemble([Constant(0), Constant(1)], Polytope(np.eye(2)))
    found = said(SmoothedClassifier(base, 2, 0.25), tiny_images(4), [0, 2], 100, 0.001, torch.device("cpu"))
    assert [row["predict"] for row in found.rows] == [ABSTAIN] * 2
    assert (found.votes == 2).all()
