"""Combinations whose parts fit each other, as in params.yaml; of any rule, those that it takes."""

import itertools
from contextlib import suppress

from rs.ensemble.rules import check_rule
from rs.study.ensembles import Combination


def named(*entries):
    """Return ensembles of the parameters by made-up names."""
    return {f"entry {number}": entry for number, entry in enumerate(entries)}


EQUAL = {"rule": "softmax", "weights": "equal", "scope": "global"}
OPTIMAL = {"rule": "softmax", "weights": "optimal", "scope": "global"}
GOOD = {
    "equal": EQUAL,
    "optimal": OPTIMAL,
    "printed": OPTIMAL | {"weights": "printed"},
    "radius": OPTIMAL | {"weights": "radius"},
    "logits": EQUAL | {"rule": "logits"},
    "vote": {"rule": "vote", "scope": "global"},
    "mme": {"rule": "mme", "scope": "noisy-input"},
    "consensus": {"rule": "consensus", "scope": "noisy-input", "agree": 2},
    "cascade": {"rule": "cascade", "scope": "noisy-input", "thresholds": "fitted", "share": 0.001},
    "per-image": OPTIMAL | {"scope": "per-image", "target": "predicted"},
    "per-image, printed": {
        "rule": "softmax",
        "scope": "per-image",
        "weights": "printed",
        "target": "label",
    },
}

WEIGHTS = (0.5, 0.2, 0.3)
THRESHOLDS = (0.5, 0.1)
EXAMPLES = {
    "weights": ["equal", "optimal"],
    "target": ["predicted"],
    "agree": [1, 2],
    "thresholds": ["fitted"],
    "share": [0.001],
}
"""Values of the parts of a combination that rules are tried with, of three members."""


def fitting(name, rule):
    """The combinations of a rule with each of EXAMPLES that it takes."""
    for scope, parts in rule.scopes.items():
        found = []
        for values in itertools.product(*(EXAMPLES[part] for part in parts)):
            combination = Combination(
                rule=name, scope=scope, **dict(zip(parts, values, strict=True))
            )
            with suppress(ValueError):
                check_rule(combination)
                found.append(combination)
        assert found, f"no combination of EXAMPLES fits the rule {name} of scope {scope}"
        yield from found
