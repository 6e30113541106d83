"""A certificate goes to JSON and back, and nothing that no certificate can be comes back."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rs.smoothing.vote_counting import Tally, certificate_of_test, certificate_of_votes
from rs.statistics.certificate import Certificate
from rs.statistics.sequential import Decider
from tests.support.helpers import refuses


def votes(values):
    return np.array(values, dtype=np.int64)


@st.composite
def certificates(draw):
    """Certificates of a fixed number of samples, whole or by the shortcut, and of early tests."""
    classes = draw(st.integers(2, 4))
    numbers = st.lists(st.integers(0, 2000), min_size=classes, max_size=classes).filter(any)
    first = Tally(votes(draw(numbers)), draw(st.none() | st.integers(1, 10**6)))
    sigma = draw(st.floats(1e-6, 10))
    alpha = draw(st.floats(1e-200, 0.999))
    if draw(st.booleans()):
        second = draw(st.none() | numbers.map(lambda values: Tally(votes(values))))
        return certificate_of_votes(first, second, alpha, sigma, "grid")
    test = Decider([0.0, 0.25, 0.5], sigma=0.5, alpha=0.001, budget=3000)
    counts = votes([0] * classes)
    top = int(first.votes.argmax())
    share = draw(st.floats(0, 1))
    while samples := test.next_draws():
        test.update(round(share * samples), samples)
    counts[top] = test.successes
    counts[top - 1] = test.draws - test.successes
    return certificate_of_test(first, Tally(counts), test, "gaussian")


def json_and_back(certificate):
    return Certificate.from_dict(json.loads(json.dumps(certificate.to_dict())))


@settings(deadline=None)
@given(certificates())
def test_a_certificate_comes_back_equal_from_json(certificate):
    back = json_and_back(certificate)
    assert back == certificate
    assert hash(back) == hash(certificate)
    for entry in fields(Certificate):  # also by a comparison that is not that of certificates
        np.testing.assert_array_equal(getattr(back, entry.name), getattr(certificate, entry.name))
    assert back.counts.dtype == certificate.counts.dtype


def a_certificate(**changes):
    made = certificate_of_votes(Tally(votes([2, 98])), Tally(votes([30, 970])), 0.001, 0.5)
    return replace(made, **changes)


def test_numbers_of_numpy_are_the_numbers_of_python():
    made = a_certificate()
    numpy = {"predict": np.int64(1), "radius": np.float64(made.radius), "n": np.int32(made.n)}
    assert a_certificate(**numpy) == made == json_and_back(a_certificate(**numpy))
    assert len({a_certificate(**numpy), made}) == 1


@pytest.mark.parametrize("field", [entry.name for entry in fields(Certificate)])
def test_certificates_that_differ_in_one_field_are_not_equal(field):
    other = {"mode": "shortcut", "evaluations": 0, "noise": "grid"}.get(field)
    if other is None:
        other = getattr(a_certificate(), field) + 1
    assert a_certificate(**{field: other}) != a_certificate()
    assert a_certificate() != a_certificate().to_dict()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"n0": 100.5, "alpha": 2.0}, "n0.*alpha"),
        ({"radius": float("nan")}, "radius"),
        ({"radius": 1.5}, "radius must be that of p_lower"),
        ({"p_lower": 0.99999, "radius": 2.13}, "alpha"),
        ({"p_lower": 0.0}, "predict"),
        ({"predict": -1}, "predict"),
        ({"predict": 0}, "counts0"),
        ({"counts": [30, 969]}, "counts"),
        ({"counts": [0, 30, 970]}, "same classes"),
        ({"further": 1}, "further"),
    ],
)
def test_what_no_certificate_can_be_is_refused(changes, names):
    with refuses(names):
        Certificate.from_dict(a_certificate().to_dict() | changes)
