"""Combinations whose parts fit each other, as in params.yaml."""

EQUAL = {"rule": "softmax", "weights": "equal", "scope": "global"}
OPTIMAL = {"rule": "softmax", "weights": "optimal", "scope": "global"}
GOOD = {
    "equal": EQUAL,
    "listed": EQUAL | {"weights": [0.2, 0.3, 0.5]},
    "optimal": OPTIMAL,
    "printed": OPTIMAL | {"weights": "printed"},
    "logits": EQUAL | {"rule": "logits"},
    "vote": {"rule": "vote", "scope": "global"},
    "mme": {"rule": "mme", "scope": "noisy-input"},
    "consensus": {"rule": "consensus", "scope": "noisy-input", "agree": 2},
    "set": {"rule": "softmax", "scope": "set", "low": 0.2, "high": 0.6},
    "per-image": OPTIMAL | {"scope": "per-image", "target": "predicted"},
    "per-image, printed": {"rule": "softmax", "scope": "per-image", "weights": "printed", "target": "label"},
    "per-image, clipped": OPTIMAL | {"scope": "per-image", "target": "predicted", "low": 0.2, "high": 0.6},
}
