"""The smoothed classifier: noise, CERTIFY and PREDICT, its soft form with the losses on it, and attacks on it."""

from rs import lazily

_NAMES = {
    **dict.fromkeys(
        ("SmoothedClassifier", "Precision", "autocast", "certificate", "shortcut", "winner"), "rs.smoothing.classifier"
    ),
    **dict.fromkeys(("ABSTAIN", "Certificate"), "rs.statistics.certificate"),
}
__all__ = [*_NAMES]
__getattr__ = lazily(__name__, _NAMES)
