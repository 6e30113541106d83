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

const TRAPEZOID = Array.from({ length: 13 }, (_, k) => Math.exp(-(((k + 1) / 2) ** 2)));

/** Return Phi(-x) for x >= 0, with all digits: the trapezoidal rule with its residue (Chiarella & Reichel 1968). */
function normalTail(x) {
  const z = x / Math.SQRT2;
  if (z < 0.5) { // the series of erf
    let [term, sum] = [z, z];
    for (let k = 1; k < 20; k += 1) {
      term *= (-z * z) / k;
      sum += term / (2 * k + 1);
    }
    return 0.5 - sum / Math.sqrt(Math.PI);
  }
  let sum = 1 / (2 * z * z);
  for (let k = 0; k < TRAPEZOID.length; k += 1) sum += TRAPEZOID[k] / (((k + 1) * (k + 1)) / 4 + z * z);
  const residue = z < 2 * Math.PI ? 1 / (1 - Math.exp(4 * Math.PI * z)) : 0;
  return (z * Math.exp(-z * z) * sum) / (2 * Math.PI) + residue;
}

/** Return Gamma(k / 2) for a positive whole k. */
function gammaOfHalf(k) {
  return k > 2 ? (k / 2 - 1) * gammaOfHalf(k - 2) : k === 2 ? 1 : Math.sqrt(Math.PI);
}

/** Return the probability that a chi-square of so many degrees of freedom is above x. */
function chiSquareTail(x, freedom) {
  if (x > 1400) return 0;
  if (freedom < 3) return freedom === 2 ? Math.exp(-x / 2) : 2 * normalTail(Math.sqrt(x));
  return chiSquareTail(x, freedom - 2) + ((x / 2) ** (freedom / 2 - 1) * Math.exp(-x / 2)) / gammaOfHalf(freedom);
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

/** Return the nodes and weights of the Gauss-Legendre rule on (-1, 1), by Newton's method on the polynomial. */
function gaussLegendre(count) {
  return Array.from({ length: count }, (_, i) => {
    let x = Math.cos((Math.PI * (i + 0.75)) / (count + 0.5));
    let slope = 0;
    for (let step = 0; step < 8; step += 1) {
      let [before, value] = [1, x];
      for (let k = 2; k <= count; k += 1) [before, value] = [value, ((2 * k - 1) * x * value - (k - 1) * before) / k];
      slope = (count * (x * value - before)) / (x * x - 1);
      x -= value / slope;
    }
    return { node: x, weight: 2 / ((1 - x * x) * slope * slope) };
  });
}

const LEGENDRE = gaussLegendre(24);
const ROOT_10 = Math.sqrt(10);
const HERMITE = [[0, 8 / 15], ...[1, -1].flatMap((sign) => [ // of the standard normal distribution
  [sign * Math.sqrt(5 - ROOT_10), (7 + 2 * ROOT_10) / 60], [sign * Math.sqrt(5 + ROOT_10), (7 - 2 * ROOT_10) / 60]])];
const [MIN_SQUARE, MIN_SCALE] = [1e-200, 1e-6];

/** Return the mean squares of a table of seeds by images, each scaled to the variance of the mean. */
function meanSquares(table) {
  const [seedCount, imageCount] = [table.length, table[0].length];
  const bySeed = table.map((row) => moments(row).mean);
  const byImage = meanOf(table);
  const whole = moments(byImage).mean;
  const rest = sumOf(seedCount, (s) => sumOf(imageCount, (i) => (table[s][i] - bySeed[s] - byImage[i] + whole) ** 2));
  return {
    images: moments(byImage).variance / imageCount,
    seeds: moments(bySeed).variance / seedCount,
    rest: rest / ((seedCount - 1) * (imageCount - 1)) / (seedCount * imageCount),
    imageCount,
    seedCount,
  };
}

/** Return freedom / chi2 at a quantile of a standard normal variable (Wilson & Hilferty 1931). */
function inverseChiSquare(freedom, node) {
  const spread = 2 / (9 * freedom);
  return Math.max(1 - spread + node * Math.sqrt(spread), 0.05) ** -3;
}

/** Return the generalized p-value of a mean, by the nodes of rs.statistics.two_way.p_value. */
function twoWayPValue(mean, squares) {
  if (mean === 0) return 1;
  const [A, B, R] = [squares.images, squares.seeds, squares.rest].map((one) => Math.max(one / (mean * mean), MIN_SQUARE));
  const freedom = squares.seedCount - 1;
  const constant = 2 ** (1 - freedom / 2) / gammaOfHalf(freedom);
  const seeds = freedom * B;
  const rests = [-1, 1].map((node) => R * inverseChiSquare(freedom * (squares.imageCount - 1), node));
  let total = 0;
  for (const [hermite, share] of HERMITE) {
    const images = A * inverseChiSquare(squares.imageCount - 1, hermite);
    const scale = Math.max(Math.sqrt(seeds / (1 + images)), MIN_SCALE);
    for (const rest of rests) {
      const end = Math.min(Math.sqrt(seeds / rest), Math.sqrt(freedom) + 9);
      const width = Math.asinh(end / scale) / 2;
      let sum = chiSquareTail(seeds / rest, freedom) * normalTail(1 / Math.sqrt(images));
      for (const { node, weight } of LEGENDRE) {
        const u = width * (node + 1);
        const chi = scale * Math.sinh(u);
        const density = constant * chi ** (freedom - 1) * Math.exp((-chi * chi) / 2);
        const variance = Math.max(images, images - rest + seeds / Math.max(chi, MIN_SCALE ** 2) ** 2);
        sum += density * scale * Math.cosh(u) * width * weight * normalTail(1 / Math.sqrt(variance));
      }
      total += share * sum; // twice the tail, half of each rest
    }
  }
  return Math.min(total, 1);
}

/** Return the positive x at which a falling p(x) is LEVEL, from a first guess, by secants of ln p (Illinois). */
function quantileOf(p, guess) {
  const above = (x) => Math.log(p(x) / LEVEL);
  let [low, left] = [guess, above(guess)];
  let [high, right] = [low, left];
  while (right > 0) [low, left, high, right] = [high, right, 2 * high, above(2 * high)];
  while (left < 0) [low, left, high, right] = [low / 2, above(low / 2), low, left];
  for (let step = 0, before = 0; step < 100 && left !== right; step += 1) {
    const x = low + ((high - low) * left) / (left - right);
    const value = above(x);
    if (Math.abs(value) < 1e-13) return x;
    if (value > 0) [low, left, right] = [x, value, before > 0 ? right / 2 : right];
    else [high, right, left] = [x, value, before < 0 ? left / 2 : left];
    before = value;
  }
  return low;
}

const NORMAL = -normalQuantile(LEVEL / 2);
const studentQuantile = remembered((images) => quantileOf((t) => pValue(t, 1, images - 1), 2));

/** Return half the width of the 95 % interval over images and training seeds. */
function twoWayHalfWidth(squares) {
  const guess = Math.sqrt(Math.max(squares.images, squares.seeds));
  return guess === 0 ? 0 : quantileOf((mean) => twoWayPValue(mean, squares), 2 * guess);
}

/** Return a number to the digits that Python keeps of it (rs.statistics.comparison.DIGITS). */
const rounded = (value) => Number(value.toPrecision(6));

/** Return whether a value may be 0 at LEVEL, by its error over images and seeds, where that is known. */
function isTie(value, errorImages, error, images) {
  return Math.abs(value) <= (error === null ? errorImages * studentQuantile(images) : error * NORMAL);
}

/**
 * Return the mean score of a sample, or of its paired difference to another one, with both errors.
 *
 * A sample has `scores`, an array for each classifier, `seeds`, the training seeds of each, and `fewestSeeds`, the
 * number of seeds of the method that has the fewest, null where there is one method. `error` is over images and training
 * seeds, null where one training is all there is (rs.statistics.comparison.estimate).
 */
function estimate(...samples) {
  const seeds = [...new Set(samples.flatMap((one) => one.seeds.flat()))];
  const whole = differenceWithout(samples, null);
  const { mean: value, variance } = moments(whole);
  const images = whole.length;
  const errorImages = Math.sqrt(variance / images);
  const byImages = pValue(value, errorImages, images - 1);
  const parts = seeds.map((seed) => differenceWithout(samples, seed));
  const counted = Math.min(...samples.map((one) => one.fewestSeeds ?? new Set(one.seeds.flat()).size));
  const known = counted > 1 && !parts.includes(null) && samples.every((one) => one.seeds.every((s) => s.length));
  let [error, p] = [null, byImages];
  if (known) {
    const table = parts.map((part) => part.map((v, i) => seeds.length * whole[i] - (seeds.length - 1) * v));
    const squares = { ...meanSquares(table), seedCount: counted };
    p = Math.max(byImages, twoWayPValue(value, squares));
    error = rounded(Math.max(errorImages * studentQuantile(images), twoWayHalfWidth(squares)) / NORMAL);
  }
  return { value, errorImages, error, images, p: rounded(p), tie: isTie(value, errorImages, error, images) };
}

/** Return how many decimals an estimate needs so that what is shown is a tie where it is one: at least four. */
function decimalsOf({ value, errorImages, error, images, tie }) {
  for (let k = 4; ; k += 1) {
    const shown = [value, errorImages, error].map((one) => (one === null ? null : Number(one.toFixed(k))));
    if (isTie(...shown, images) === tie) return k;
  }
}
