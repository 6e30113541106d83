import importlib
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr, ndtri

from rs.errors import InputError
from rs.statistics.radius import lower_bound, radius, upper_bound
from rs.statistics.sequential import RULES, Betting, Cumulative, RadiusSequence, at_radius, check_times, share

ROOT = Path(__file__).parents[2]
LOGS = ROOT.parent / "shared" / "data" / "published_logs"

alphas = st.sampled_from([1e-3, 0.01, 0.05, 0.3])
both_rules = pytest.mark.parametrize("rule", RULES)


def crossing_probability(crossed, times, p):
    """The exact probability that ``crossed(k, check)`` holds at some look, by following the law of the count k."""
    law, total = np.ones(1), 0.0  # law[k] = P(k successes so far, and no crossing)
    for check, new in enumerate(np.diff(times, prepend=0)):
        law = np.convolve(law, stats.binom.pmf(np.arange(new + 1), new, p))
        out = crossed(np.arange(len(law)), check)
        total += law[out].sum()
        law[out] = 0
    return total


def play(run, path):
    """Feed a run with the successes of ``path``, a share of the draws for every look; until it stops."""
    shares = iter(path)
    while draws := run.next_draws():
        run.update(round(next(shares) * draws), draws)
    return run


LOOKS = 60  # more than any run below takes


@st.composite
def paths(draw):
    """Shares of successes that wander around some probability."""
    centre, spread = draw(st.floats(0.3, 1)), draw(st.sampled_from([0.0, 0.05, 0.3]))
    noise = draw(st.lists(st.floats(-1, 1), min_size=LOOKS, max_size=LOOKS))
    return np.clip(centre + spread * np.array(noise), 0, 1)


# The schedule


@given(st.integers(1, 300_000), st.floats(1, 3), st.integers(10, 2000))
def test_looks_are_at_growing_multiples_of_the_step_and_end_at_the_budget(budget, growth, step):
    times = check_times(budget, growth, step)
    steps = np.diff(times[:-1], prepend=0)
    assert times[-1] == budget
    assert times[0] == min(step, budget)
    assert (times[:-1] % step == 0).all()
    assert (steps >= step).all()
    assert (np.diff(times) > 0).all()
    nearest = np.maximum(times[:-2] * growth, times[:-2] + step)
    assert (np.abs(times[1:-1] - nearest) <= step / 2 * (1 + 1e-9)).all()


@given(st.integers(1, 2000))
def test_the_parts_of_alpha_sum_to_one(checks):
    """To rounding: each part is off by 2^-53 of itself at most, and so is their exact sum."""
    assert math.fsum(share(check, checks) for check in range(checks)) == pytest.approx(1, rel=3 * 2**-53)


@given(st.integers(2, 2000), st.data())
def test_only_the_last_look_departs_from_the_endless_series(checks, data):
    """The series 5 / ((t + 4) (t + 5)) over t = 1, 2, ... sums to 1; what follows t = T - 1 goes to look T."""
    t = data.draw(st.integers(1, checks - 1))
    assert share(t - 1, checks) == pytest.approx(5 / ((t + 4) * (t + 5)), rel=1e-15)
    before = sum(5 / ((s + 4) * (s + 5)) for s in range(1, checks))
    assert share(checks - 1, checks) == pytest.approx(1 - before, abs=1e-12)


# The guarantee, by enumeration


@both_rules
@pytest.mark.parametrize(("alpha", "budget"), [(0.001, 5000), (0.05, 3000), (0.3, 500)])
@pytest.mark.parametrize("p0", [0.5, 0.6, 0.84, 0.9987])
def test_a_rule_ever_says_yes_at_p0_with_probability_at_most_alpha(rule, alpha, budget, p0):
    """Even one that would go on after a "no". Likewise "no", with beta, here and where p is anything larger."""
    made = RULES[rule](check_times(budget, RULES[rule].growth), alpha, alpha)
    for p, side in ((p0, made.above), (p0 - 0.02, made.above), (p0, made.below), (p0 + 0.001, made.below)):
        assert crossing_probability(lambda k, check, side=side: side(k, check, p0), made.times, p) <= alpha


@pytest.mark.parametrize("p0", [0.5, 0.6, 0.84, 0.99])
def test_without_a_split_of_alpha_the_same_looks_would_break_the_promise(p0):
    """What the two rules are for, and proof that the enumeration can tell."""
    times = check_times(5000, 1.25)
    naive = crossing_probability(lambda k, check: lower_bound(k, times[check], 0.05) >= p0, times, p0)
    assert naive > 0.1


def test_betting_after_every_draw_crosses_as_often_as_computed_elsewhere():
    """Up to 20,000 draws and to two digits, by another program: .00035 .00033 .00024 .00015 at alpha = .001.

    By thresholds on the count, one draw at a time.
    """
    n = np.arange(1, 20_001)
    rule = Betting(n, 0.001, 0.001)
    for z, stated in ((0.25, 0.00035), (1.5, 0.00015)):
        p0 = ndtr(z)
        low, high = np.floor(n * p0), n + 1.0  # "yes" at no k <= n p0, and we write n + 1 for never
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            yes = rule.above(middle, n - 1, p0)
            low, high = np.where(yes, low, middle), np.where(yes, middle, high)
        law, total = np.zeros(20_002), 0.0
        law[0] = 1
        for draws, fewest in enumerate(high.astype(int), start=1):
            law[1 : draws + 1] = law[1 : draws + 1] * (1 - p0) + law[:draws] * p0
            law[0] *= 1 - p0
            total += law[fewest : draws + 1].sum()
            law[fewest : draws + 1] = 0
        assert round(total, 5) == stated


@pytest.mark.parametrize("p", [0.5, 0.7, 0.9, 0.999])
@pytest.mark.parametrize(("alpha", "beta"), [(0.001, 0.05), (0.3, 0.001)])
def test_any_bound_of_a_sequence_misses_p_with_probability_at_most_its_level(p, alpha, beta):
    """So does the largest lower bound, which is reported: it exceeds p just where one of them does."""
    rule = Cumulative(check_times(4000, 1.25), alpha, beta)
    assert crossing_probability(lambda k, check: rule.lower(k, check) > p, rule.times, p) <= alpha
    assert crossing_probability(lambda k, check: rule.upper(k, check) < p, rule.times, p) <= beta


def outcomes(make, p, step, budget):
    """All runs of ``make()`` and their probabilities, by brute force over the successes of every step."""
    for path in product(range(step + 1), repeat=budget // step):
        run, steps = make(), iter(path)
        chance = 1.0
        while draws := run.next_draws():
            successes = next(steps)
            chance *= stats.binom.pmf(successes, draws, p)
            run.update(successes, draws)
        if all(rest == 0 for rest in steps):  # each run once, whatever would have followed
            yield run, chance


@both_rules
def test_runs_themselves_say_yes_at_p0_with_probability_at_most_alpha(rule):
    """Two draws a look, 10 at most, alpha = 0.3; and yes, no and undecided all occur."""
    p0, chances = ndtr(0.3), {"yes": 0.0, "no": 0.0, None: 0.0}
    for run, chance in outcomes(lambda: at_radius(0.3, 1, 0.3, 10, beta=0.3, rule=rule, step=2), p0, 2, 10):
        chances[run.answer] += chance
    assert sum(chances.values()) == pytest.approx(1)
    assert 0 < chances["yes"] <= 0.3
    assert 0 < chances["no"] <= 0.3
    assert chances[None] > 0


@pytest.mark.parametrize("p", [0.55, 0.8, 0.95])
def test_runs_report_more_than_the_true_radius_with_probability_at_most_alpha(p):
    made = list(outcomes(lambda: RadiusSequence(1.0, 0.5, 0.3, 10, beta=0.3, step=2), p, 2, 10))
    assert sum(chance for _, chance in made) == pytest.approx(1)
    assert sum(chance for run, chance in made if run.radius > ndtri(p)) <= 0.3
    assert any(run.radius > 0 for run, _ in made)


@both_rules
def test_full_runs_say_yes_at_p0_in_a_share_alpha_of_simulations_at_most(rule):
    """100,000 draws at most. If the promise holds, 20,000 runs break the limit with probability 1e-6 or less."""
    runs, alpha, p0 = 20_000, 0.05, ndtr(0.5)
    made = RULES[rule](check_times(100_000, 1.25), alpha, 0.001)
    rng = np.random.default_rng(0)
    k, yes = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=bool)
    for check, new in enumerate(np.diff(made.times, prepend=0)):
        k += rng.binomial(new, p0, size=runs)
        yes |= made.above(k, check, p0)
    assert yes.sum() <= stats.binom.isf(1e-6, runs, alpha)


# What the runs compute


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.floats(0.5, 0.99))
def test_wealth_is_the_product_of_sequential_bets(draws, p0):
    """Krichevsky and Trofimov bet on success number k + 1 at draw n + 1 as if p were (k + 1/2) / (n + 1)."""
    wealth, k = 0.0, 0
    for n, success in enumerate(draws):
        p = (k + 0.5) / (n + 1)
        wealth += math.log(p / p0) if success else math.log((1 - p) / (1 - p0))
        k += success
    rule = Betting(np.array([len(draws)]), 0.05, 0.05)
    assert rule.log_wealth(k, 0, p0) == pytest.approx(wealth, rel=1e-10, abs=1e-10)


@given(st.integers(10, 300), st.floats(0.5, 0.99), alphas)
def test_betting_needs_a_threshold_of_successes_whatever_the_count(n, p0, alpha):
    rule = Betting(np.array([n]), alpha, alpha)
    k = np.arange(n + 1)
    assert (np.diff(rule.above(k, 0, p0).astype(int)) >= 0).all()
    assert (np.diff(rule.below(k, 0, p0).astype(int)) <= 0).all()


@given(st.floats(0, 3), alphas)
def test_nothing_but_successes_is_certified_at_the_first_look_whose_closed_form_bound_suffices(r, alpha):
    """The lower bound of n successes of n is level^(1/n)."""
    run = play(at_radius(r, 1.0, alpha, 100_000), [1.0] * LOOKS)
    times = check_times(100_000, 1.25).tolist()
    levels = [5 * alpha / ((t + 4) * (t + 5)) for t in range(1, len(times))]
    first = next(n for n, level in zip(times, levels, strict=False) if level ** (1 / n) >= ndtr(r))
    assert (run.answer, run.draws) == ("yes", first)


@both_rules
def test_runs_stop_at_the_first_look_that_settles_the_question(rule):
    """Against the definitions, written out for each look."""
    alpha, beta, p0 = 0.01, 0.05, ndtr(0.5)
    for share_, expected in ((0.6, "no"), (0.8, "yes"), (p0, None)):
        run = at_radius(0.5, 1.0, alpha, 5000, beta=beta, rule=rule)
        answers = []
        while draws := run.next_draws():
            answers.append(run.update(round(share_ * draws), draws))
            n, k = run.draws, run.successes
            t, T = len(answers), len(run.times)
            if rule == "cumulative":
                part = 5 / (t + 4) if t == T else 5 / ((t + 4) * (t + 5))
                yes, no = lower_bound(k, n, part * alpha) >= p0, upper_bound(k, n, part * beta) < p0
            else:
                log_b = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1) - math.log(math.pi)
                wealth = log_b - k * math.log(p0) - (n - k) * math.log(1 - p0)
                yes = k / n > p0 and wealth >= math.log(1 / alpha)
                no = k / n < p0 and wealth >= math.log(1 / beta)
            assert answers[-1] == ("yes" if yes else "no" if no else None)
        assert run.answer == answers[-1] == expected
        assert answers[:-1] == [None] * (len(answers) - 1)
        assert (run.draws == 5000) == (expected is None)


# Laws of answers


RANK = {"no": 0, None: 1, "yes": 2}


def decide(path, r=0.5, alpha=0.01, rule="cumulative"):
    """A finished run on ``path``; the betting rule at the same looks as the other, to have fewer of them."""
    run = at_radius(r, 1.0, alpha, 20_000, beta=0.01, rule=rule, step=500)
    return play(run, path)


def at_least_as_sure(more, less):
    """Whether ``more`` answers no worse than ``less``, and says yes no later."""
    no_later = less.answer != "yes" or more.draws <= less.draws
    return RANK[more.answer] >= RANK[less.answer] and no_later


@both_rules
@given(path=paths(), extra=st.floats(0, 0.2))
def test_more_successes_never_turn_yes_into_no(rule, path, extra):
    assert at_least_as_sure(decide(np.minimum(1, path + extra), rule=rule), decide(path, rule=rule))


@both_rules
@given(path=paths(), r=st.floats(0, 2), less=st.floats(0, 1))
def test_a_radius_that_is_certified_certifies_smaller_ones_on_the_same_draws(rule, path, r, less):
    assert at_least_as_sure(decide(path, r * less, rule=rule), decide(path, r, rule=rule))


@both_rules
@given(path=paths(), alpha=st.floats(1e-4, 0.3), less=st.floats(0.01, 1))
def test_a_larger_alpha_certifies_no_later(rule, path, alpha, less):
    assert at_least_as_sure(decide(path, alpha=alpha, rule=rule), decide(path, alpha=alpha * less, rule=rule))


# The radius within a tolerance


@given(path=paths(), tolerance=st.floats(0, 1), sigma=st.sampled_from([0.25, 1.0]))
def test_a_sequence_stops_at_the_first_look_that_leaves_at_most_the_tolerance(path, tolerance, sigma):
    """Against the definition, with the bounds of all looks so far."""
    run, alpha, beta = RadiusSequence(sigma, tolerance, 0.01, 20_000, beta=0.05), 0.01, 0.05
    lows, highs, T = [0.0], [1.0], len(run.times)
    for share_ in path:
        draws = run.next_draws()
        run.update(round(share_ * draws), draws)
        t, n, k = run.looks, run.draws, run.successes
        part = 5 / (t + 4) if t == T else 5 / ((t + 4) * (t + 5))
        lows.append(lower_bound(k, n, part * alpha))
        highs.append(upper_bound(k, n, part * beta))
        assert (run.p_lower, run.p_upper) == (pytest.approx(max(lows)), pytest.approx(min(highs)))
        assert run.radius == radius(run.p_lower, sigma)
        attainable = lower_bound(20_000 - n + k, 20_000, alpha * 5 / (T + 4))
        gap = sigma * (ndtri(min(*highs, attainable)) - ndtri(max(lows))) if max(lows) else math.inf
        stops = min(highs) < 0.5 or (max(lows) >= 0.5 and gap <= tolerance) or n == 20_000
        assert (run.next_draws() == 0) == stops
        if stops:
            break


def test_images_that_abstain_for_sure_cost_little():
    run = play(RadiusSequence(0.5, 0.01, 0.001, 100_000), [0.3] * LOOKS)
    assert run.p_upper < 0.5
    assert run.radius == 0
    assert run.draws == 100  # P(at most 30 of 100) = 3.9e-5 at p = 1/2, and look 1 has 1e-3 / 6 = 1.7e-4


def test_no_tolerance_turns_an_answer_into_an_abstention():
    run = play(RadiusSequence(0.5, 10.0, 0.001, 100_000), [0.55] * LOOKS)
    assert run.p_lower >= 0.5
    assert run.draws < 100_000


@given(st.floats(0.001, 1), alphas)
def test_nothing_but_successes_comes_within_the_tolerance_of_the_cap(tolerance, alpha):
    """The cap is that of the last look, Phi^-1((alpha 5 / (T + 4))^(1 / n)), in units of sigma."""
    run = play(RadiusSequence(2.0, 2.0 * tolerance, alpha, 100_000), [1.0] * LOOKS)
    cap = ndtri((alpha * 5 / (len(run.times) + 4)) ** (1 / 100_000))
    assert cap - tolerance <= run.radius / 2 * (1 + 1e-12)
    assert run.radius / 2 <= cap * (1 + 1e-12)


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "cumulativ"}, "rule must be one of cumulative, betting; got 'cumulativ'"),
        ({"radius": -0.1}, "radius must be a number of at least 0, got -0.1"),
        ({"radius": math.nan}, "radius must be a number"),
        ({"radius": 1.0}, "radius must be within reach of 1000 draws .* got 1.0"),
        ({"radius": 9.0}, "radius must be within reach of 1000 draws"),
        ({"radius": 9.0, "rule": "betting"}, "radius must be within reach of 1000 draws"),
        ({"sigma": 0.0}, "sigma must be a positive number, got 0.0"),
        ({"alpha": 1.0}, "alpha must be strictly between 0 and 1"),
        ({"beta": 0.0}, "beta must be strictly between 0 and 1"),
        ({"beta": 0.0, "rule": "betting"}, "beta must be strictly between 0 and 1"),
        ({"budget": 0}, "budget must be a whole number of at least 1, got 0"),
        ({"budget": math.inf}, "budget must be a whole number"),
        ({"step": 0.5}, "step must be a whole number"),
    ],
)
def test_impossible_questions_are_refused_with_a_reason(arguments, message):
    usual = {"radius": 0.25, "sigma": 0.25, "alpha": 0.001, "budget": 1000}
    with pytest.raises(InputError, match=message):
        at_radius(**usual | arguments)


@pytest.mark.parametrize(("sigma", "tolerance"), [(0.0, 0.1), (0.5, -0.1), (0.5, math.nan)])
def test_impossible_tolerances_are_refused(sigma, tolerance):
    with pytest.raises(InputError, match="must be"):
        RadiusSequence(sigma, tolerance, 0.001, 1000)


@pytest.mark.parametrize(("successes", "draws"), [(50, 99), (100, 200), (101, 100), (-1, 100), (0, 0)])
def test_counts_that_are_not_due_are_refused_and_not_counted(successes, draws):
    for run in (at_radius(0.5, 1.0, 0.001, 1000), RadiusSequence(1.0, 0.1, 0.001, 1000)):
        with pytest.raises(ValueError, match=f"of 100 draws, got {successes} of {draws}"):
            run.update(successes, draws)
        assert (run.draws, run.successes, run.next_draws()) == (0, 0, 100)


def test_a_run_that_is_over_takes_no_more_draws():
    run = play(at_radius(0.5, 1.0, 0.001, 1000), [1.0] * LOOKS)
    with pytest.raises(ValueError, match="of 0 draws"):
        run.update(0, 0)


# What it saves


@pytest.mark.skipif(not LOGS.is_dir(), reason=f"needs the published logs in {LOGS}")
def test_replays_of_published_logs_take_20_times_fewer_draws_and_lose_one_point_at_most(monkeypatch):
    """Every fifth image; means of the nine cases for both rules, and each case for the default one."""
    monkeypatch.syspath_prepend(str(ROOT))
    bench = importlib.import_module("benchmarks.sequential")
    gains, losses = [], []
    for sigma, radii in bench.GRID.items():
        p = bench.probabilities(LOGS, "smoothadv", sigma, np.random.default_rng(0))[::5]
        for r in radii:
            replay = bench.replays(p, r, sigma, seed=0)
            gains.append([bench.gain(replay, rule) for rule in RULES])
            losses.append([bench.lost(replay, rule) for rule in RULES])
    assert len(gains) == 9
    assert (np.mean(gains, axis=0) >= 20).all()
    assert (np.mean(losses, axis=0) <= 1).all()
    assert max(lost for lost, _ in losses) <= 1
