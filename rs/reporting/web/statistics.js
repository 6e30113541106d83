"use strict";
// From votes to radii and errors, as rs.statistics does it in Python; tests hold both against each other to 1e-9.

const LEVEL = 0.05; // of ties (rs.statistics.comparison.LEVEL)

/** Return ln Gamma(x + 1) - ((x + 1/2) ln x - x + ln(2 pi) / 2), the error of Stirling's formula, for x > 0. */
function stirlingError(x) {
  let error = 0;
  for (; x < 16; x += 1) error += (x + 0.5) * Math.log1p(1 / x) - 1;
  const s = 1 / (x * x);
  return error + (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / x;
}

/** Return x ln(x / mean) + mean - x without cancellation (Loader 2000), for positive x and mean. */
function deviance(x, mean) {
  const v = (x - mean) / (x + mean);
  if (Math.abs(v) >= 0.1) return x * Math.log(x / mean) + mean - x;
  let sum = (x - mean) * v;
  let power = 2 * x * v;
  for (let j = 3; j < 40; j += 2) {
    power *= v * v;
    sum += power / j;
  }
  return sum;
}

/** Return x^a (1 - x)^b / B(a, b) for positive a and b and x in (0, 1) (Loader 2000). */
function betaPower(a, b, x) {
  const n = a + b;
  const errors = stirlingError(n) - stirlingError(a) - stirlingError(b);
  const exponent = errors - deviance(a, n * x) - deviance(b, n * (1 - x));
  return Math.exp(exponent) * Math.sqrt((a * b) / (2 * Math.PI * n));
}

/** Return the continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz' algorithm. */
function betaFraction(a, b, x) {
  let c = 1;
  let d = 1 / (1 - ((a + b) * x) / (a + 1));
  let value = d;
  for (let m = 1; m < 100000; m += 1) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / (1 + even * d);
    c = 1 + even / c;
    value *= c * d;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / (1 + odd * d);
    c = 1 + odd / c;
    const factor = c * d;
    value *= factor;
    if (Math.abs(factor - 1) < 1e-16) break;
  }
  return value;
}

/** Return I_x(a, b), the regularised incomplete beta function. */
function betaInc(a, b, x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaInc(b, a, 1 - x);
  return (betaPower(a, b, x) * betaFraction(a, b, x)) / a;
}

/**
 * Return the x with I_x(a, b) = share, by Newton's method on ln I.
 *
 * ln I is concave in x for a, b >= 1, so after one step all others come from the left.
 */
function betaIncInverse(a, b, share) {
  let x = a / (a + b);
  for (let step = 0; step < 200; step += 1) {
    const below = betaInc(a, b, x);
    const change = (Math.log(below / share) * below * x * (1 - x)) / betaPower(a, b, x);
    const next = Math.min(Math.max(x - change, x / 2), (1 + x) / 2);
    if (Math.abs(next - x) <= 1e-16 * x) return next;
    x = next;
  }
  return x;
}

/** Return the one-sided lower bound of Clopper and Pearson: the p with P(Binomial(trials, p) >= successes) = alpha. */
function lowerBound(successes, trials, alpha) {
  if (successes === 0) return 0;
  if (successes === trials) return alpha ** (1 / trials);
  return betaIncInverse(successes, trials - successes + 1, alpha);
}

/** Return the one-sided upper bound of Clopper and Pearson: the p with P(Binomial(trials, p) <= successes) = alpha. */
function upperBound(successes, trials, alpha) {
  if (successes === 0) return -Math.expm1(Math.log(alpha) / trials);
  return 1 - lowerBound(trials - successes, trials, alpha);
}

/** Return the polynomial of these coefficients, the highest power first. */
function polynomial(x, coefficients) {
  return coefficients.reduce((sum, c) => sum * x + c, 0);
}

const CENTRE = [
  [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
    1971.5909503065514427, 133.14166789178437745, 3.387132872796366608],
  [5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
    687.1870074920579083, 42.313330701600911252, 1],
];
const MIDDLE = [
  [7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
    3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734],
  [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
    0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1],
];
const TAIL = [
  [2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
    0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772],
  [2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
    0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1],
];

/** Return Phi^-1(p), the quantile of the standard normal distribution (Wichura 1988, AS 241). */
function normalQuantile(p) {
  const q = p - 0.5;
  const ratio = ([top, bottom], r) => polynomial(r, top) / polynomial(r, bottom);
  if (Math.abs(q) <= 0.425) return q * ratio(CENTRE, 0.180625 - q * q);
  const tail = Math.min(p, 1 - p);
  if (tail <= 0) return q < 0 ? -Infinity : Infinity;
  const r = Math.sqrt(-Math.log(tail));
  return Math.sign(q) * (r <= 5 ? ratio(MIDDLE, r - 1.6) : ratio(TAIL, r - 5));
}

/** Return sigma Phi^-1(lower), or 0 below 1/2 (Cohen et al. 2019). */
function oneSidedRadius(sigma, lower) {
  return lower < 0.5 ? 0 : sigma * normalQuantile(lower);
}

/** Return sigma / 2 (Phi^-1(lower) - Phi^-1(upper)), or 0 where the bounds overlap (Cohen et al. 2019). */
function twoSidedRadius(sigma, lower, upper) {
  return lower > upper ? (sigma / 2) * (normalQuantile(lower) - normalQuantile(upper)) : 0;
}

/** Return f, which looks up what it has found before. */
function remembered(f) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, f(key));
    return known.get(key);
  };
}

/**
 * Return bounds and radii as functions of votes of so many draws.
 *
 * `one(votes)` is the lower bound. `two(classes)` is a function of sigma and of the votes for the selected class and for
 * the second one; nine tenths of alpha pay for the lower bound, the rest evenly for the other classes' upper bounds
 * (rs.statistics.radius.two_sided_radius).
 */
function boundsOf(trials, alpha) {
  const one = remembered((votes) => lowerBound(votes, trials, alpha));
  const low = remembered((votes) => lowerBound(votes, trials, 0.9 * alpha));
  const two = remembered((classes) => {
    const high = remembered((votes) => upperBound(votes, trials, ((1 - 0.9) * alpha) / (classes - 1)));
    return (sigma, first, second) => twoSidedRadius(sigma, low(first), Math.min(1 - low(first), high(second)));
  });
  return { one, two };
}

/** Return the two-sided p-value of value / error by Student's t. */
function pValue(value, error, freedom) {
  if (error === 0) return value === 0 ? 1 : 0;
  const t = value / error;
  return betaInc(freedom / 2, 0.5, freedom / (freedom + t * t));
}

/** Return the sum of f over indices below a number. */
function sumOf(count, f) {
  let sum = 0;
  for (let i = 0; i < count; i += 1) sum += f(i);
  return sum;
}

/** Return mean and variance (of a sample) of numbers. */
function moments(values) {
  const mean = sumOf(values.length, (i) => values[i]) / values.length;
  const squares = sumOf(values.length, (i) => (values[i] - mean) ** 2);
  return { mean, variance: squares / (values.length - 1) };
}

/** Return the mean of several arrays, or null if there are none. */
function meanOf(arrays) {
  if (arrays.length === 0) return null;
  return arrays[0].map((_, i) => sumOf(arrays.length, (s) => arrays[s][i]) / arrays.length);
}

/** Return the mean scores of a sample less those of another one, without the classifiers that a seed is in. */
function differenceWithout(samples, seed) {
  const means = samples.map((one) => meanOf(one.scores.filter((_, i) => !one.seeds[i].includes(seed))));
  if (means.includes(null)) return null;
  return means.length === 1 ? means[0] : means[0].map((value, i) => value - means[1][i]);
}

/** Return the standard error of the mean of a table of seeds by images, and its degrees of freedom. */
function twoWayError(table) {
  const [seeds, images] = [table.length, table[0].length];
  const bySeed = table.map((row) => moments(row).mean);
  const byImage = meanOf(table);
  const whole = moments(byImage).mean;
  const rest = sumOf(seeds, (s) => sumOf(images, (i) => (table[s][i] - bySeed[s] - byImage[i] + whole) ** 2));
  const freedom = { images: images - 1, seeds: seeds - 1, rest: (seeds - 1) * (images - 1) };
  const variance = {
    images: moments(byImage).variance / images,
    seeds: moments(bySeed).variance / seeds,
    rest: rest / freedom.rest / (seeds * images),
  };
  const positive = ["images", "seeds"].filter((name) => variance[name] > variance.rest);
  if (positive.length < 2) {
    const largest = positive[0] ?? "rest";
    return { error: Math.sqrt(variance[largest]), freedom: freedom[largest] };
  }
  const total = variance.images + variance.seeds - variance.rest;
  const squares = Object.keys(variance).reduce((sum, name) => sum + variance[name] ** 2 / freedom[name], 0);
  return { error: Math.sqrt(total), freedom: total ** 2 / squares };
}

/**
 * Return the mean score of a sample, or of its paired difference to another one, with both errors.
 *
 * A sample has `scores`, an array for each classifier, and `seeds`, the training seeds of each. `error` is over images
 * and training seeds, null where one training is all there is (rs.statistics.comparison.estimate).
 */
function estimate(...samples) {
  const seeds = [...new Set(samples.flatMap((one) => one.seeds.flat()))];
  const whole = differenceWithout(samples, null);
  const { mean: value, variance } = moments(whole);
  const images = whole.length;
  const errorImages = Math.sqrt(variance / images);
  const byImages = pValue(value, errorImages, images - 1);
  const parts = seeds.map((seed) => differenceWithout(samples, seed));
  const known = seeds.length > 0 && !parts.includes(null) && samples.every((one) => one.seeds.every((s) => s.length));
  const alone = { value, errorImages, error: null, images, p: byImages, tie: byImages > LEVEL };
  if (!known) return alone;
  const table = parts.map((part) => part.map((v, i) => seeds.length * whole[i] - (seeds.length - 1) * v));
  const { error, freedom } = twoWayError(table);
  const p = Math.max(byImages, pValue(value, error, freedom));
  return { ...alone, error, freedom, p, tie: p > LEVEL };
}

/** Return how many decimals an estimate needs so that what is shown is a tie where it is one: at least four. */
function decimalsOf({ value, errorImages, error, images, freedom, tie }) {
  for (let k = 4; ; k += 1) {
    const [v, byImages, byBoth] = [value, errorImages, error ?? 0].map((one) => Number(one.toFixed(k)));
    const p = Math.max(pValue(v, byImages, images - 1), error === null ? 0 : pValue(v, byBoth, freedom));
    if (p > LEVEL === tie) return k;
  }
}
