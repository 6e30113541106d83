"""Certifications that Ctrl-C stops."""

from contextlib import contextmanager
from unittest.mock import patch

from rs.smoothing.classifier import SmoothedClassifier


@contextmanager
def stopped_after(certificates):
    """Let Ctrl-C come in the certificate after so many."""
    certify = SmoothedClassifier.certify_until
    left = iter(range(certificates))

    def until_then(*arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return certify(*arguments, **options)

    with patch.object(SmoothedClassifier, "certify_until", until_then):
        yield
