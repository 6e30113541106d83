"""Randomized smoothing as a verifier of VERONA (https://github.com/ADA-research/VERONA).

VERONA computes robustness distributions: for each image the largest epsilon up to which a verifier
proves robustness. This verifier is about the smoothed classifier and l2 balls, so its results are
not those of the network itself, nor of an l-infinity ball::

    verifier = SmoothingModule(sigma=0.25)
    estimator = BinarySearchEpsilonValueEstimator([0.1, 0.25, 0.5, 1.0], verifier)

ada-verona 1.0.3 asks for Python 3.10; ``pip install --ignore-requires-python ada-verona``.
"""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path

import torch
from ada_verona import One2AnyPropertyGenerator, VerificationContext, VerificationModule
from ada_verona.database.verification_result import CompleteVerificationData, VerificationResult

import rs


class SmoothingModule(VerificationModule):
    """Verifies the smoothed classifier of a network, with one certificate per image.

    - ``UNSAT``: the class of every image within l2 distance epsilon is the label.
    - ``SAT``: the smoothed classifier gives the image itself another class.
    - ``TIMEOUT``: neither is known, because the radius is smaller or the classifier abstains.

    Each statement is wrong with probability at most ``alpha`` per image.

    Args:
        sigma: Standard deviation of the noise, in pixels of [0, 1].
        n0, n, alpha: As for ``rs.SmoothedClassifier.certify``.
    """

    def __init__(self, sigma: float, n0: int = 100, n: int = 10_000, alpha: float = 0.001) -> None:
        self.sigma = sigma
        self.settings = {"n0": n0, "n": n, "alpha": alpha}
        self.name = f"randomized smoothing (l2, sigma {sigma:g}, n {n:,}, alpha {alpha:g})"

    def verify(self, context: VerificationContext, epsilon: float) -> CompleteVerificationData:
        """Return what the certificate of the image says of its l2 ball of this radius."""
        if not isinstance(context.property_generator, One2AnyPropertyGenerator):
            raise NotImplementedError("smoothing certifies against all other classes: one to any")
        start = time.perf_counter()
        certificate = self.certificate(context)
        if certificate.predict == rs.ABSTAIN:
            result = VerificationResult.TIMEOUT
        elif certificate.predict != context.data_point.label:
            result = VerificationResult.SAT
        elif epsilon <= certificate.radius:
            result = VerificationResult.UNSAT
        else:
            result = VerificationResult.TIMEOUT
        labels = torch.tensor([certificate.predict])
        took = time.perf_counter() - start
        return CompleteVerificationData(result, took, obtained_labels=labels)

    def certificate(self, context: VerificationContext) -> rs.Certificate:
        """Return the certificate of the image, which is made once and kept next to its results."""
        path = Path(context.tmp_path) / f"{self.name}.json"
        if path.is_file():
            return rs.Certificate.from_dict(json.loads(path.read_text()))
        image = context.data_point.data
        network = context.network.load_pytorch_model().torch_model  # its wrapper takes one image
        smoothed = rs.SmoothedClassifier(network, sigma=self.sigma)
        seed = secrets.randbits(32)  # whoever chooses an image must not know its noise
        certificate = smoothed.certify(image, seed=seed, **self.settings)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(certificate.to_dict()))
        return certificate
