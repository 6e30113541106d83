import copy
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr

from rs.statistics.radius import lower_bound
from rs.statistics.sequential import Decider, alpha_spending, look_schedule
from tests.support.helpers import refuses
from tests.support.looks import crossing_probability


def answers_of(run):
    """The answer of a run to each of its radii; a yes is kept."""
    answers = dict.fromkeys(run.radii)
    for radius in run.radii[run.open_to :]:
        answers[radius] = "no"
    for radius in run.radii[: run.established]:
        answers[radius] = "yes"
    return answers


LOOKS = 60  # more than any run below takes


@st.composite
def paths(draw):
    """Shares of successes that wander around some probability."""
    center = draw(st.floats(0.3, 1))
    spread = draw(st.sampled_from([0.0, 0.05, 0.3]))
    noise = draw(st.lists(st.floats(-1, 1), min_size=LOOKS, max_size=LOOKS))
    return np.clip(center + spread * np.array(noise), 0, 1)


@given(st.integers(1, 300_000), st.integers(1, 1000))
def test_the_parts_of_alpha_sum_to_one(budget, step):
    """Up to rounding: the relative error of a sum of T roots is at most T 2^-53."""
    times = look_schedule(budget, step)
    assert math.fsum(alpha_spending(times)) == pytest.approx(1, rel=(len(times) + 8) * 2**-53)


# The guarantee, by enumeration


@pytest.mark.parametrize(("alpha", "budget"), [(0.001, 5000), (0.05, 3000), (0.3, 500)])
@pytest.mark.parametrize("p0", [0.5, 0.6, 0.84, 0.9987])
def test_looks_ever_say_yes_at_p0_with_probability_at_most_alpha(alpha, budget, p0):
    """Even one that would go on after a "no". The same holds for "no", with beta."""
    test = Decider([0.0], 1.0, alpha, budget, beta=alpha)
    says_yes = crossing_probability(lambda k, look: test.lower(k, look) >= p0, test.times, p0)
    says_no = crossing_probability(lambda k, look: test.upper(k, look) < p0, test.times, p0)
    assert says_yes <= alpha
    assert says_no <= alpha


@pytest.mark.parametrize("p0", [0.5, 0.6, 0.84, 0.99])
def test_without_a_split_of_alpha_the_same_looks_would_break_the_promise(p0):
    """What the split is for, and proof that the enumeration can tell."""
    times = look_schedule(5000)

    def crossed(k, look):
        return lower_bound(k, times[look], 0.05) >= p0

    assert crossing_probability(crossed, times, p0) > 0.1


RADII = [0.0, 0.2, 0.3, 0.6]
STEP = 2
BUDGET = 10


def outcomes(p, beta):
    """All runs of many radii and their probabilities, by brute force over the successes of every
    step.
    """
    chances = stats.binom.pmf(np.arange(STEP + 1), STEP, p)
    start = Decider(RADII, 1, 0.3, BUDGET, beta=beta, step=STEP)
    for path in product(range(STEP + 1), repeat=BUDGET // STEP):
        run = copy.deepcopy(start)
        steps = iter(path)
        chance = 1.0
        while draws := run.next_draws():
            successes = next(steps)
            assert draws == STEP
            chance *= chances[successes]
            run.update(successes, draws)
        if not any(steps):  # each run once, whatever would have followed
            yield run, chance


@pytest.mark.parametrize(
    "p", [0.45, 0.5, 0.55, float(ndtr(0.2)), 0.6, float(ndtr(0.3)), 0.65, 0.75]
)
def test_runs_of_many_radii_say_yes_to_any_false_one_with_probability_at_most_alpha(p):
    """Alpha is not split: this is the chance that some yes among all radii is false, at p just
    below them too.
    """
    chance_of_false = 0.0
    total = 0.0
    numbers_certified = set()
    for run, chance in outcomes(p, beta=0.3):
        certified = [r for r, answer in answers_of(run).items() if answer == "yes"]
        expected = (0.0, None)
        if certified:
            expected = (float(ndtr(certified[-1])), certified[-1])
        assert certified == RADII[: len(certified)]
        assert run.certified() == expected
        total += chance
        chance_of_false += chance * any(ndtr(r) >= p for r in certified)
        numbers_certified.add(len(certified))
    assert total == pytest.approx(1)
    assert chance_of_false <= 0.3
    assert len(numbers_certified) > 2


@pytest.mark.parametrize("radius", RADII[:3])
def test_runs_give_up_what_the_budget_would_rather_certify_with_probability_at_most_beta(radius):
    """At p = w_k, the share of successes with which the last look says yes, and above."""
    beta = 0.1
    single = Decider([radius], 1, 0.3, BUDGET, beta=beta, step=STEP)
    (share,) = single.required_share
    for p in (share, (1 + share) / 2):
        chance_of_no = 0.0
        for run, chance in outcomes(p, beta):
            chance_of_no += chance * (answers_of(run)[radius] == "no")
        assert chance_of_no <= beta


# What the runs compute


@example(path=np.full(LOOKS, 0.6935), radii=[0.5], alpha=0.01)  # neither yes nor no
@example(path=np.array([0.62] + [0.48] * LOOKS), radii=[0.0, 0.2], alpha=0.01)  # yes is kept
@given(
    path=paths(),
    radii=st.lists(st.floats(0, 2), min_size=1, max_size=3, unique=True).map(sorted),
    alpha=st.floats(1e-4, 0.3),
)
def test_runs_stop_at_the_first_look_that_settles_the_question(path, radii, alpha):
    """Against the definitions, for each look: so larger shares, smaller radii and larger alphas
    help.
    """
    run = Decider(radii, 1.0, alpha, 20_000, beta=0.05, step=500)
    yes = np.zeros(len(radii), dtype=bool)
    no = run.required_share > 1
    for look, share in enumerate(path):
        draws = run.next_draws()
        run.update(round(share * draws), draws)
        yes |= run.lower(run.successes, look) >= ndtr(radii)
        no |= run.upper(run.successes, look) < run.required_share
        expected = np.where(yes, "yes", np.where(no, "no", None))
        is_settled = (yes | no).all() or run.draws == 20_000
        assert list(answers_of(run).values()) == expected.tolist()
        assert (run.next_draws() == 0) == is_settled
        if is_settled:
            break


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radii": [-0.1]}, "radius must be a number of at least 0, got -0.1"),
        ({"radii": [0.25, 0.25]}, "radii must be one or more, in increasing order, got 0.25, 0.25"),
        ({"radii": [1.0, 1.5]}, "radius must be at most 0.6158, .* 1,000 samples .*, got 1.0; ask"),
        ({"sigma": 0.0}, "sigma must be a positive number, got 0.0"),
        ({"alpha": 1e-300}, "alpha must be .* at least 1e-200"),
        ({"beta": 0.0}, "beta must be strictly between 0 and 1"),
    ],
)
def test_impossible_questions_are_refused_with_a_reason(arguments, message):
    usual = {"radii": [0.25], "sigma": 0.25, "alpha": 0.001, "budget": 1000}
    with refuses(message):
        Decider(**usual | arguments)


@pytest.mark.parametrize(("successes", "draws"), [(0, 200), (101, 100), (-1, 100)])
def test_a_run_takes_the_samples_until_its_next_look_and_no_others(successes, draws):
    run = Decider([0.25], 0.25, 0.001, 1000)
    with pytest.raises(ValueError, match=f"successes of 100 samples, got {successes} of {draws}"):
        run.update(successes, draws)
    while run.next_draws():
        run.update(0, run.next_draws())
    with pytest.raises(ValueError, match="successes of 0 samples"):
        run.update(0, 0)
