"use strict";
// The page: settings -> certificates of every result -> tables and charts. statistics.js has the mathematics.

const DATA = JSON.parse(document.getElementById("data").textContent);
const STEPS = 200; // points of a curve
const PAGE_ROWS = 50; // images that are shown at once
const PROBABILITIES = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999];
const DASHES = { 2: [2, 6], 3: [8, 8] }; // of ensembles, by their number of members
const DARK_MACER = "#6b7bff"; // on a dark page; apart from the blue of smoothmix
const MIXED = ["#9467bd", "#cc79a7", "#17a2b8", "#a0a022"]; // of ensembles of several methods, by which

const state = {};
const charts = {};
const $ = (id) => document.getElementById(id);
const level = () => DATA.levels[state.sigma];

// ---------------------------------------------------------------------------------------------- elements

/** Return an element with attributes and children; functions listen to events. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function setOptions(id, options, chosen) {
  $(id).replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  $(id).value = chosen;
}

function setTable(id, titles, rows) {
  const words = (k) => rows[0]?.children[k]?.className === "text" && "text";
  const head = element("tr", {}, ...titles.map((title, k) => element("th", { class: words(k) }, title)));
  $(id).replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

const tag = (text) => element("span", { class: "tag" }, text);
const soft = (text) => element("span", { class: "soft" }, text);
const cell = (...children) => element("td", {}, ...children);
const text = (...children) => element("td", { class: "text" }, ...children);

// ------------------------------------------------------------------------------------------------- votes

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Read the votes of a noise level: column c of result r at image i stands at (c R + r) N + i (rs.reporting.page). */
async function readVotes(one) {
  const planes = await inflate(one.votes);
  const size = planes.length / one.width;
  one.columns = new Uint32Array(size);
  for (let i = 0; i < planes.length; i += 1) one.columns[i % size] += planes[i] * 256 ** Math.floor(i / size);
  delete one.votes;
}

function columnsOf(one, result) {
  const [results, images] = [one.results.length, one.labels.length];
  const column = (c) => one.columns.subarray((c * results + result) * images, (c * results + result + 1) * images);
  return { other: column(0), missing: column(1), rest: column(2), own: column(3) };
}

/** Return the certificates of a result for the first images, or null where two-sided ones cannot be told. */
function certificatesOf(one, index) {
  const { other, missing, rest, own } = columnsOf(one, index);
  const { classes, undecided } = one.results[index];
  if (state.sides === "two" && !classes) return null;
  const two = state.sides === "two" ? state.bounds.two(classes) : null;
  const made = { radius: new Float64Array(state.images), score: new Float64Array(state.images) };
  made.right = new Uint8Array(state.images);
  made.label = new Float64Array(state.images); // bound of the label's probability
  for (let i = 0; i < state.images; i += 1) {
    if (missing[i] > DATA.n) continue;
    const first = DATA.n - missing[i];
    const bound = state.bounds.one(first);
    made.label[i] = other[i] === 0 ? bound : Math.min(state.bounds.one(own[i]), 0.5);
    if (other[i] - 1 === undecided) continue; // most of the n0 draws were votes for no class
    made.radius[i] = two ? two(one.sigma, first, missing[i] - rest[i]) : oneSidedRadius(one.sigma, bound);
    made.right[i] = other[i] === 0 && (two ? made.radius[i] > 0 : bound >= 0.5);
    made.score[i] = made.right[i] * made.radius[i];
  }
  return made;
}

const certificates = (index) => state.certificates(index);

/** Return the scores of results of a group as a sample; several results stand for one classifier as their mean. */
function sampleOf(group, teams) {
  const all = teams.map((team) => team.map((i) => certificates(i)?.score));
  if (all.flat().includes(undefined)) return null;
  const seeds = teams.map((team) => [...new Set(team.flatMap((i) => level().results[i].seeds))]);
  return { scores: all.map((team) => meanOf(team)), seeds, fewestSeeds: group.fewest_seeds };
}

const samples = (group) => sampleOf(group, group.results.map((i) => [i]));

/** Return the share of images that are right with at least a radius, mean over the results. */
function accuracy(group, radius) {
  const shares = group.results.map((i) => {
    const { right, radius: radii } = certificates(i);
    return sumOf(state.images, (k) => right[k] && radii[k] >= radius) / state.images;
  });
  return moments(shares).mean;
}

function compare(group, sample) {
  const own = samples(group);
  return own && sample ? estimate(own, sample) : null;
}

/** Return every group of the noise level with its numbers, and which of the sound ones is best. */
function numbersOf(groups) {
  const all = groups.map((group) => {
    const sample = samples(group);
    return { group, sample, acr: sample && estimate(sample), clean: sample && accuracy(group, 0) };
  });
  const sound = all.filter((one) => one.acr && one.group.sound);
  const best = sound.reduce((a, b) => (a && a.acr.value >= b.acr.value ? a : b), null);
  for (const one of sound) one.tie = one !== best && estimate(best.sample, one.sample).tie;
  for (const one of sound) one.best = one === best || one.tie;
  return all;
}

// ----------------------------------------------------------------------------------------------- numbers

const fixed = (value, digits) => value.toFixed(digits);
const percent = (value) => `${fixed(100 * value, 1)} %`;
const signed = (value, digits) => (Number(fixed(value, digits)) === 0 ? fixed(0, digits) : `${value > 0 ? "+" : "−"}${fixed(Math.abs(value), digits)}`);
const scientific = (value) => (value >= 0.001 ? String(+value.toPrecision(3)) : value.toExponential(1).replace(".0", ""));
const brackets = (value, digits) => (value === null ? "" : ` [${fixed(value, digits)}]`);

/** Return a number that leads to its rows, command and parameters. */
function number(shown, what, results, exact) {
  const open = () => openPanel(what, exact, results);
  return element("button", { type: "button", class: "value", click: open }, shown);
}

function acrCell(one) {
  const { group, acr } = one;
  if (!acr) return cell(soft("needs all votes"));
  const errors = ` ± ${fixed(acr.errorImages, 3)}${brackets(acr.error, 3)}`;
  const exact = { ...acr, p: null };
  return cell(number(fixed(acr.value, 3), `ACR of ${group.name}`, group.results, exact), soft(errors), one.tie ? " " : "", one.tie ? tag("tie") : null);
}

function cleanCell({ group, clean }) {
  return cell(clean === null ? "" : number(percent(clean), `clean accuracy of ${group.name}`, group.results, { value: clean }));
}

function differenceCell(group, found, results, what) {
  if (!found) return cell("–");
  const digits = decimalsOf(found);
  const errors = ` ± ${fixed(found.errorImages, digits)}${brackets(found.error, digits)} `;
  const verdict = [found.tie ? tag("tie") : null, found.error === null ? element("i", { class: "soft" }, " images only") : null];
  return cell(number(signed(found.value, digits), `ACR of ${group.name} less ${what}`, results, found), soft(errors), ...verdict);
}

function nameOf(group) {
  return group.sound ? group.name : element("span", {}, `${group.name} `, element("a", { href: "#unsound", title: "not sound: see below the table" }, "†"));
}

// ------------------------------------------------------------------------------------------------ tables

function showHeadline() {
  const reference = level().groups.find((group) => group.name === state.reference);
  const against = samples(reference);
  const rows = state.headline.map((one) => {
    const { group } = one;
    one.difference = group === reference ? null : compare(group, against);
    const results = [...group.results, ...reference.results];
    return element("tr", { class: one.best && "best" }, cell(nameOf(group)), acrCell(one), cleanCell(one),
      differenceCell(group, one.difference, results, reference.name));
  });
  setTable("headline", ["Method", "ACR ± error [with seeds]", "Clean accuracy", `ACR less ${reference.name}`], rows);
  document.querySelectorAll(".reference-name").forEach((one) => one.replaceChildren(reference.name));
}

/** Return the name of a group with its combination, which goes without saying elsewhere where it is the usual one. */
const fullName = ({ name, ensemble, combination }) => (ensemble && combination === DATA.combination ? `${name} (${combination})` : name);

function showSummary() {
  const best = state.headline.find((one) => one.best && !one.tie);
  if (!best) {
    $("summary").replaceChildren(`No result has a sound ${state.sides}-sided certificate.`);
    $("largest").replaceChildren();
    return;
  }
  const ties = state.headline.filter((one) => one.tie).map((one) => one.group.name);
  const listed = ties.length > 4 ? `${ties.length} others` : ties.join(", ");
  const acr = `${fixed(best.acr.value, 3)} ± ${fixed(best.acr.errorImages, 3)}`;
  const ranked = [` has the largest ACR of the table: ${acr}. `, ties.length ? `Tied with it: ${listed}.` : "None ties with it."];
  $("summary").replaceChildren(`At σ = ${level().sigma}, `, element("b", {}, best.group.name),
    ...(state.headline.length > 1 ? ranked : [` has an ACR of ${acr}.`]));
  const largest = state.all.find((one) => one.best && !one.tie);
  const sound = state.all.filter((one) => one.acr && one.group.sound).length;
  $("largest").replaceChildren(`Of all ${sound} models and ensembles with a sound certificate, `, element("b", {}, fullName(largest.group)),
    ` has the largest ACR, ${fixed(largest.acr.value, 3)}. Chosen on these images, it is overstated.`);
}

function showCombinations() {
  const kept = level().groups.filter((group) => group.ensemble && ["all", group.ensemble].includes(state.ensemble));
  const rows = [];
  for (const ensemble of new Set(kept.map((group) => group.ensemble))) {
    const groups = kept.filter((group) => group.ensemble === ensemble);
    rows.push(...combinationRows(groups));
  }
  const titles = ["Ensemble", "Combination, scope", "ACR ± error [with seeds]", "Clean accuracy", "ACR less members' mean", `ACR less ${DATA.combination}`, "Members a draw"];
  setTable("combinations", titles, rows);
}

/** Return the rows of an ensemble: the mean of its members, and its combinations. */
function combinationRows(groups) {
  return numbersOf(groups).map((one, i) => {
    const { group } = one;
    const members = group.members?.every((team) => team.length) ? sampleOf(group, group.members) : null;
    const beside = group.beside && sampleOf(group, group.beside.map((k) => [k]));
    const draws = moments(group.results.map((k) => level().results[k].evaluations)).mean;
    const dagger = group.sound ? "" : element("a", { href: "#unsound", title: "not sound: see below the table" }, " †");
    const scope = soft(group.sound ? ` ${group.scope}` : ` ${group.scope}: not sound`);
    return element("tr", { class: [i ? "" : "first-of-many", one.best ? "best" : ""].join(" ") },
      cell(group.ensemble), text(group.combination, dagger, scope), acrCell(one), cleanCell(one),
      differenceCell(group, compare(group, members), [...group.results, ...new Set((group.members ?? []).flat())], "the mean of its members"),
      group.beside ? differenceCell(group, compare(group, beside), [...group.results, ...group.beside], DATA.combination) : cell("–"),
      cell(number(String(+draws.toPrecision(3)), `members evaluated a draw by ${group.name}`, group.results, { value: draws })));
  });
}

function imageRows() {
  const { other, missing, own } = columnsOf(level(), state.classifier);
  const found = certificates(state.classifier);
  if (!found) return [];
  const listed = Array.from({ length: state.images }, (_, i) => {
    const skipped = missing[i] > DATA.n;
    const selected = other[i] ? other[i] - 1 : level().labels[i];
    const none = selected === level().results[state.classifier].undecided;
    const sure = skipped || found.right[i] || (other[i] > 0 && !none && (found.radius[i] > 0 || (state.sides === "one" && state.bounds.one(DATA.n - missing[i]) >= 0.5)));
    const kind = skipped ? "skipped" : !sure ? "abstains" : found.right[i] ? "right" : "mistakes";
    const votes = skipped ? null : DATA.n - missing[i];
    return { i, kind, selected, votes, own: own[i], radius: found.radius[i] };
  });
  const kept = listed.filter((one) => ["all", one.kind].includes(state.filter));
  const orders = { largest: (a, b) => b.radius - a.radius, smallest: (a, b) => a.radius - b.radius, index: () => 0 };
  return kept.sort((a, b) => orders[state.sort](a, b) || a.i - b.i);
}

const KINDS = { right: "right", abstains: "abstains", mistakes: "confident mistake", skipped: "wrong, draws skipped" };

/** Return the picture of an image, cut out of the sheet that has them all; null if the sheet does not have it. */
function picture(image) {
  const place = DATA.pictures ? DATA.levels[0].indices.indexOf(image) : -1;
  if (place < 0 || place >= DATA.pictures.count) return null;
  const { columns } = DATA.pictures;
  const at = `--column: ${place % columns}; --line: ${Math.floor(place / columns)}`;
  return element("span", { class: "picture", role: "img", "aria-label": `picture of image ${image}`, style: at });
}

/** Let every picture be cut out of the sheet. */
function showPictures({ url, columns, count }) {
  const look = { "--sheet": `url(${url})`, "--columns": columns, "--lines": Math.ceil(count / columns) };
  Object.entries(look).forEach((pair) => document.documentElement.style.setProperty(...pair));
}

/** Say what classes and pictures there are. */
function aboutImages() {
  const classes = DATA.classes ? "" : "Classes are the numbers of the data set. ";
  if (!DATA.pictures) return `${classes}The pictures themselves are not in this page.`;
  const some = DATA.pictures.count < DATA.images ? `of the first ${DATA.pictures.count.toLocaleString("en")} alone, ` : "";
  const lossy = DATA.pictures.url.startsWith("data:image/jpeg") ? ", and JPEG, whose small losses no classifier saw" : "";
  return `${classes}Pictures are ${some}of at most 32 pixels a side${lossy}.`;
}

function showImages() {
  const rows = imageRows();
  const result = level().results[state.classifier];
  const skipped = columnsOf(level(), state.classifier).missing.some((votes) => votes > DATA.n);
  const note = skipped ? " Where the n₀ draws chose a wrong class, the n draws were skipped, so this study has no confident mistakes." : "";
  $("found").replaceChildren(`${rows.length.toLocaleString("en")} of ${state.images.toLocaleString("en")} images. ${aboutImages()}${note}`);
  const shown = rows.slice(0, state.rows).map((one) => {
    const image = level().indices[one.i];
    const shownAs = (k) => (k === result.undecided ? "no class" : DATA.classes?.[k] ?? String(k));
    const radius = one.votes === null ? "–" : number(fixed(one.radius, 3), `radius of image ${image} by ${result.name}`, [state.classifier], { value: one.radius });
    return element("tr", {}, cell(picture(image), `image ${image}`), cell(shownAs(level().labels[one.i])), cell(one.kind === "abstains" ? "abstains" : shownAs(one.selected)),
      cell(radius), cell(one.votes === null ? "–" : `${one.votes.toLocaleString("en")} for ${shownAs(one.selected)}`), text(KINDS[one.kind]));
  });
  setTable("gallery", ["Image", "Label", "Prediction", "Radius", `Votes of ${DATA.n.toLocaleString("en")}`, "Verdict"], shown);
  $("more").hidden = rows.length <= state.rows;
}

function showProvenance() {
  const counts = DATA.provenance.map((_, k) => sumOf(DATA.levels.length, (s) => DATA.levels[s].results.filter((one) => one.provenance === k).length));
  const versions = (one) => Object.entries(one.versions ?? {}).map((pair) => pair.join(" ")).join(", ");
  const rows = DATA.provenance.map((one, k) => element("tr", {}, cell(String(counts[k])), text(`${one.device ?? "?"}, ${one.precision ?? "?"}, ${one.engine ?? "?"}, ${one.arithmetic ?? "?"}`),
    text(versions(one)), text(element("code", { title: one.code ?? "" }, (one.code ?? "?").slice(0, 12))), text(element("code", { title: one.images ?? "" }, (one.images ?? "?").slice(0, 12)))));
  setTable("provenance", ["Row files", "Device, precision, engine, arithmetic", "Versions", "Code", "Images"], rows);
  const remake = DATA.levels[0].results[0].target ? [" This page is made from raw data by ", element("code", {}, `make study DATASET=${DATA.dataset}`), "."] : [];
  $("again").replaceChildren("Code and images are fingerprints.", ...remake);
}

// ------------------------------------------------------------------------------------------------- panel

function list(values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  const named = (value) => Object.entries(value).map(([name, part]) => `${name} ${typeof part === "object" ? JSON.stringify(part) : part}`);
  const shown = (value) => (typeof value === "object" ? named(value).join(", ") : String(value));
  return element("dl", {}, ...pairs.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, shown(value))]));
}

/** Show where a number comes from: its files, the commands that make them, and their parameters. */
function openPanel(what, exact, results) {
  const settings = `σ = ${level().sigma}, α = ${state.alpha}, first ${state.images} images, ${state.sides}-sided radii`;
  const numbers = { value: exact.value, "standard error over images": exact.errorImages, "error over images and seeds": exact.error, "p-value of 0": exact.p };
  const parts = [...new Set(results)].map((i, k) => {
    const one = level().results[i];
    return element("details", { open: k === 0 && "open" }, element("summary", {}, element("code", {}, one.file)),
      element("pre", {}, `${one.target ? `make study DATASET=${DATA.dataset} TARGETS=${one.target}\n\n` : ""}${one.command}`),
      list({ "parameters": one.parameters, "certified with": { n0: DATA.n0, n: DATA.n, alpha: DATA.alpha, sigma: level().sigma }, "weights chose": one.chosen, ...DATA.provenance[one.provenance] }));
  });
  const head = [element("h3", {}, what), list({ ...numbers, "at these settings": settings }), element("p", {}, parts.length > 1 ? `From ${parts.length} files of rows:` : "From one file of rows:")];
  $("panel-body").replaceChildren(...head, ...parts);
  if (!$("panel").open) $("panel").showModal();
}

// ------------------------------------------------------------------------------------------------ charts

const dark = matchMedia("(prefers-color-scheme: dark)");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Return the colour of a group: of its method, or grey for several methods. */
function colourOf(group) {
  const mixtures = [...new Set(level().groups.filter((one) => one.trained.length > 1).map((one) => one.trained.join()))];
  if (group.trained.length > 1) return MIXED[mixtures.indexOf(group.trained.join()) % MIXED.length];
  const colour = DATA.colours[group.trained[0]] ?? css("--ink");
  return dark.matches && colour === DATA.colours.macer ? DARK_MACER : colour;
}

const dashOf = (group) => DASHES[Math.min(group.size, 3)] ?? DATA.dashes[group.name] ?? [];

function config() {
  const ink = css("--ink");
  const axis = { domainColor: css("--line"), gridColor: css("--line"), tickColor: css("--line"), labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 220 };
  return { background: "transparent", axis, view: { stroke: null }, font: "system-ui, sans-serif" };
}

const quantitative = (field, title, more = {}) => ({ field, type: "quantitative", title, scale: { zero: false, nice: false, padding: 10 }, axis: { tickCount: 6 }, ...more });
const own = { field: "colour", type: "nominal", scale: null };
const tips = (...pairs) => pairs.map(([field, title, format]) => ({ field, title, ...(format ? { format, type: "quantitative" } : { type: "nominal" }) }));

const named = { y: { field: "name", type: "nominal", sort: null, title: null, axis: { grid: true } }, color: own };
const bars = (title) => ({
  height: 20 + 17 * Math.max(...DATA.levels.map((one) => one.groups.filter((group) => group.headline).length)),
  layer: [
    { mark: { type: "rule", strokeWidth: 1 }, encoding: { ...named, x: quantitative("outerLow", title), x2: { field: "outerHigh" } } },
    { mark: { type: "rule", strokeWidth: 3, opacity: 0.55 }, encoding: { ...named, x: quantitative("low", title), x2: { field: "high" } } },
    { mark: { type: "point", filled: true, size: 60, opacity: 1 }, encoding: { ...named, x: quantitative("value", title), tooltip: tips(["name", "method"], ["value", "value", ".4f"], ["errorImages", "± over images", ".4f"], ["error", "± with seeds", ".4f"]) } },
  ],
});

const zero = { mark: { type: "rule", strokeDash: [4, 3], color: "#888888" }, encoding: { x: { datum: 0 } } };

// of the cell around a point, whose datum holds that of the point; an encoding looks into it for numbers alone
const CELL = "(datum.datum || datum)";
const NEAREST = `{method: ${CELL}.name, at: ${CELL}.tip, 'share of images': format(${CELL}.share, '.1%')}`;
const curve = (x, y, interpolate) => ({
  height: 360,
  encoding: { x, y },
  layer: [
    { mark: { type: "line", interpolate, strokeWidth: 1.8 }, encoding: { color: own, detail: { field: "name" }, strokeDash: { field: "dash", type: "nominal", scale: null } } },
    { params: [{ name: "near", select: { type: "point", on: "pointerover", nearest: true, encodings: ["x", "y"], clear: "pointerout" } }],
      mark: { type: "point", filled: true, size: 70, tooltip: { expr: NEAREST } },
      encoding: { color: own, opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 } } },
  ],
});

const scatter = (x) => ({
  height: 270,
  encoding: { x, y: quantitative("value", "ACR"), color: own },
  layer: [
    { mark: { type: "rule", strokeWidth: 1, opacity: 0.5 }, encoding: { y: quantitative("low", "ACR"), y2: { field: "high" } } },
    { mark: { type: "point", filled: true, size: 64, opacity: 0.95 },
      encoding: { shape: { field: "shape", type: "nominal", scale: null }, tooltip: tips(["name", "method"], ["value", "ACR", ".4f"], ["errorImages", "± over images", ".4f"], ["tip", "cost"]) } },
  ],
});

const share = quantitative("share", null, { scale: { domain: [0, 1] }, axis: { format: "%" } });
const SPECS = {
  "acr-chart": () => bars("ACR"),
  "difference-chart": () => {
    const made = bars("difference of ACR");
    return { ...made, layer: [zero, ...made.layer] };
  },
  "curves-chart": () => curve(quantitative("x", "certified ℓ₂ radius r", { scale: { zero: true, nice: false } }), share, "step-before"),
  "probability-chart": () => curve(quantitative("x", "p, lower bound of the label's probability", { scale: { nice: false, zero: false },
    axis: { values: PROBABILITIES.map(normalQuantile), labelExpr: "format(cumulativeNormal(datum.value), '.4~g')" } }), share, "step-after"),
  "members-chart": () => scatter(quantitative("shifted", "members", { axis: { values: [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15], format: "d" } })),
  "cost-chart": () => scatter(quantitative("evaluations", "members a draw", { axis: { tickCount: 5, format: "~g" } })),
};

/** Draw a chart anew, where it has none or colours have changed, or give it other values. */
async function draw(id, values) {
  $(id).hidden = values.length === 0;
  if ($(id).hidden) return;
  if (charts[id]) {
    await charts[id].data("values", values).runAsync();
    return;
  }
  const spec = { width: "container", autosize: { type: "fit-x", contains: "padding" }, data: { name: "values", values }, ...SPECS[id]() };
  const { view } = await vegaEmbed($(id), spec, { actions: false, ast: true, renderer: "svg", config: config(), mode: "vega-lite" });
  view.addEventListener("click", (_, item) => {
    const group = level().groups[item?.datum?.group ?? item?.datum?.datum?.group];
    if (group) openPanel(group.name, item.datum.value === undefined ? {} : item.datum, group.results);
  });
  charts[id] = view;
}

function point(one, found) {
  const { value, errorImages, error } = found;
  const outer = error ?? errorImages;
  return { name: one.group.name, group: level().groups.indexOf(one.group), colour: colourOf(one.group), value, errorImages, error, p: found.p,
    low: value - errorImages, high: value + errorImages, outerLow: value - outer, outerHigh: value + outer };
}

function drawBars() {
  const ranked = state.headline.filter((one) => one.acr).sort((a, b) => b.acr.value - a.acr.value);
  const plain = ranked.map((one) => ({ ...point(one, one.acr), outerLow: one.acr.value, outerHigh: one.acr.value }));
  return [draw("acr-chart", plain), draw("difference-chart", ranked.filter((one) => one.difference).map((one) => point(one, one.difference)))];
}

/** Return the points of lines, the share at each x of each chosen group. */
function lines(xs, shareAt, tip) {
  const groups = state.headline.filter((one) => one.acr && state.shown.has(one.group.name)).map((one) => one.group);
  return groups.flatMap((group) => {
    const shares = shareAt(group);
    const fixedPart = { name: group.name, group: level().groups.indexOf(group), colour: colourOf(group), dash: dashOf(group) };
    return xs.map((x, k) => ({ ...fixedPart, x, share: shares[k], tip: tip(x) }));
  });
}

/** Return the mean over results of the share of sorted numbers below each of sorted xs; equal ones count if told so. */
function sharesBelow(arrays, xs, withEqual) {
  const all = arrays.map((values) => {
    const sorted = Float64Array.from(values).sort();
    let k = 0;
    return xs.map((x) => {
      while (k < sorted.length && (withEqual ? sorted[k] <= x : sorted[k] < x)) k += 1;
      return k / state.images;
    });
  });
  return meanOf(all);
}

function drawCurves() {
  keepState();
  const longest = Math.max(level().sigma / 10, ...state.headline.filter((one) => one.acr).flatMap((one) => one.group.results.map((i) => Math.max(...certificates(i).radius))));
  const radii = Array.from({ length: STEPS + 1 }, (_, k) => (1.02 * longest * k) / STEPS);
  const certified = (group) => sharesBelow(group.results.map((i) => certificates(i).radius.map((r, k) => (certificates(i).right[k] ? r : -1))), radii, false).map((s) => 1 - s);
  const highest = Math.max(0.5, ...level().results.map((_, i) => state.certificates(i)).filter(Boolean).map((one) => Math.max(...one.label)));
  const [from, to] = [normalQuantile(0.01), 1.02 * normalQuantile(highest)];
  const zs = Array.from({ length: STEPS + 1 }, (_, k) => from + ((to - from) * k) / STEPS);
  const bounded = (group) => sharesBelow(group.results.map((i) => certificates(i).label.map(normalQuantile)), zs, true);
  return [
    draw("curves-chart", lines(radii, certified, (r) => `r = ${fixed(r, 3)}`)),
    draw("probability-chart", lines(zs, bounded, (z) => `z = Φ⁻¹(p) = ${fixed(z, 2)}`)),
  ];
}

function drawCosts() {
  const all = state.all.filter((one) => one.acr && (one.group.headline || one.group.cost)).map((one) => ({
    ...point(one, one.acr), size: one.group.size, shape: one.group.ensemble ? "diamond" : "circle", headline: one.group.headline,
    evaluations: moments(one.group.results.map((i) => level().results[i].evaluations)).mean,
  }));
  const head = all.filter((one) => one.headline);
  const kinds = [...new Set(head.map((one) => one.colour))];
  const spread = (one) => one.size + 0.04 * (kinds.indexOf(one.colour) - (kinds.length - 1) / 2);
  return [
    draw("members-chart", head.map((one) => ({ ...one, shifted: spread(one), tip: `${one.size} members` }))),
    draw("cost-chart", all.map((one) => ({ ...one, tip: `${+one.evaluations.toPrecision(3)} members a draw` }))),
  ];
}

// ---------------------------------------------------------------------------------------------- controls

function swatch(group) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  Object.entries({ width: 26, height: 8 }).forEach((pair) => made.setAttribute(...pair));
  const look = { x1: 0, x2: 26, y1: 4, y2: 4, stroke: colourOf(group), "stroke-width": 2.4, "stroke-dasharray": dashOf(group).join(" ") };
  Object.entries(look).forEach((pair) => line.setAttribute(...pair));
  made.append(line);
  return made;
}

function toggle(group) {
  const change = (event) => {
    state.shown[event.target.checked ? "add" : "delete"](group.name);
    drawCurves();
  };
  const box = element("input", { type: "checkbox", value: group.name, change });
  box.checked = state.shown.has(group.name);
  return element("label", {}, box, swatch(group), group.name);
}

function showToggles() {
  const part = (title, groups) => {
    const set = (on) => () => {
      groups.forEach((group) => state.shown[on ? "add" : "delete"](group.name));
      showToggles();
      drawCurves();
    };
    const head = element("h3", {}, title, element("button", { type: "button", click: set(true) }, "all"), element("button", { type: "button", click: set(false) }, "none"));
    return groups.length ? [head, ...groups.map(toggle)] : [];
  };
  const groups = level().groups.filter((group) => group.headline);
  $("toggles").replaceChildren(...part("Methods", groups.filter((one) => !one.ensemble)), ...part("Ensembles (sparse dots: two members; wide dashes: three or more)", groups.filter((one) => one.ensemble)));
}

function showAbout() {
  const n = (value) => value.toLocaleString("en");
  const of = state.images < DATA.certified ? ` of the ${n(DATA.certified)} certified` : "";
  $("about").replaceChildren(`${n(state.images)}${of} test images (subset ${DATA.subset}), n₀ = ${n(DATA.n0)} and n = ${n(DATA.n)} draws an image, α = ${state.alpha}. Every number is computed here, from the votes.`);
}

function showSettings() {
  showAbout();
  $("alpha").value = Math.log10(state.alpha);
  $("alpha-text").value = scientific(state.alpha);
  $("images").value = state.images;
  $("images-text").value = state.images === DATA.images ? `all ${DATA.images.toLocaleString("en")}` : `first ${state.images.toLocaleString("en")}`;
  document.querySelector(`input[name=sides][value=${state.sides}]`).checked = true;
  const asCertified = state.alpha === DATA.alpha && state.images === DATA.images && state.sides === "one";
  $("status").replaceChildren(asCertified ? "as certified" : "recomputed from the votes");
  $("status").className = asCertified ? "" : "changed";
  $("reset").hidden = asCertified;
}

/** Show what became of the claims of the paper, where a study tests them. */
function showClaims() {
  const [titles, ...rows] = DATA.claims;
  $("claims").hidden = rows.length === 0;
  if (rows.length) setTable("claims-table", titles, rows.map((row) => element("tr", {}, ...row.map((value) => cell(value)))));
}

/** Compute and show everything anew. */
async function update() {
  state.bounds = boundsOf(DATA.n, state.alpha);
  state.certificates = remembered((index) => certificatesOf(level(), index));
  state.all = numbersOf(level().groups);
  state.headline = numbersOf(level().groups.filter((group) => group.headline));
  showSettings();
  showHeadline();
  showSummary();
  showCombinations();
  showImages();
  await Promise.all([...drawBars(), ...drawCurves(), ...drawCosts()]);
  document.documentElement.dataset.ready = String(Number(document.documentElement.dataset.ready ?? 0) + 1);
}

/** Take another noise level; what it does not have is chosen anew. */
async function choose(sigma) {
  state.sigma = sigma;
  $("sigma").value = sigma;
  if (level().votes) await readVotes(level());
  const { groups, results, reference } = level();
  const names = groups.map((group) => group.name);
  if (!names.includes(state.reference)) state.reference = reference;
  const ensembles = [...new Set(groups.filter((one) => one.ensemble).map((one) => one.ensemble))];
  if (!ensembles.includes(state.ensemble)) state.ensemble = "all";
  state.classifier = 0;
  state.shown ??= new Set(groups.filter((one) => !one.ensemble).map((one) => one.name));
  const headline = groups.filter((one) => one.headline).map((one) => [one.name, one.name]);
  setOptions("reference", headline, state.reference);
  setOptions("ensemble", [["all", "all ensembles"], ...ensembles.map((name) => [name, name])], state.ensemble);
  setOptions("classifier", results.map((one, i) => [i, one.name.replace(/ at sigma [^,]*/, "")]), "0");
  $("ensemble").closest("section").hidden = ensembles.length === 0;
  if (!ensembles.length && groups.some((one) => !one.sound)) $("methods").append($("unsound")); // its section is hidden
  $("cost").hidden = !results[0].target; // rows of no study do not say how many members they are of
  showToggles();
  await update();
}

/** Write the settings into the address, once they rest. */
function keepState() {
  clearTimeout(keepState.timer);
  const parts = [["sigma", level().sigma], ["alpha", state.alpha], ...[...state.shown].map((name) => ["method", name])];
  keepState.timer = setTimeout(() => history.replaceState(null, "", `#${new URLSearchParams(parts)}`), 500);
}

/** Return the index of the noise level that the address names, and take its alpha and methods. */
function readState() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (!said.has("sigma")) return 0;
  const alpha = Number(said.get("alpha"));
  if (alpha >= 1e-6 && alpha <= 0.1) state.alpha = alpha;
  state.shown = new Set(said.getAll("method"));
  return Math.max(0, DATA.levels.findIndex((one) => one.sigma === Number(said.get("sigma"))));
}

/** Link to every section, without a change of the settings in the address. */
function showContents() {
  const sections = [...document.querySelectorAll("section")];
  const link = (section) => element("a", { href: `#${section.id}`, click: (event) => { event.preventDefault(); section.scrollIntoView(); } }, section.querySelector("h2").textContent);
  $("contents").replaceChildren(...sections.filter((section) => !section.hidden).map(link));
}

let waiting = false;

/** Update once before the next frame, however many events come. */
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    update();
  });
}

/** Set what an event says and show what depends on it. */
function listen(id, event, set, show) {
  $(id).addEventListener(event, (happened) => {
    set(happened.target.value);
    show();
  });
}

async function recolour() {
  Object.keys(charts).forEach((id) => {
    charts[id].finalize();
    delete charts[id];
  });
  showToggles();
  await update();
}

async function start() {
  if (DATA.pictures) showPictures(DATA.pictures);
  $("remarks").replaceChildren(DATA.remarks.join(" "));
  const again = () => Object.assign(state, { alpha: DATA.alpha, images: DATA.images, sides: "one" });
  Object.assign(state, again(), { rows: PAGE_ROWS, filter: "all", sort: "largest", ensemble: "all" });
  $("images").min = Math.min(10, DATA.images);
  $("images").max = DATA.images;
  setOptions("sigma", DATA.levels.map((one, i) => [i, String(one.sigma)]), "0");
  listen("sigma", "change", () => {}, () => choose(Number($("sigma").value)));
  listen("alpha", "input", (value) => { state.alpha = Math.abs(value - Math.log10(DATA.alpha)) < 0.025 ? DATA.alpha : +(10 ** value).toPrecision(3); }, soon);
  listen("images", "input", (value) => { state.images = Number(value); }, soon);
  document.querySelectorAll("input[name=sides]").forEach((one) => one.addEventListener("change", () => { state.sides = one.value; soon(); }));
  $("reset").addEventListener("click", () => { again(); soon(); });
  listen("reference", "change", (value) => { state.reference = value; }, () => { showHeadline(); drawBars(); });
  listen("ensemble", "change", (value) => { state.ensemble = value; }, showCombinations);
  const first = () => { state.rows = PAGE_ROWS; showImages(); };
  listen("classifier", "change", (value) => { state.classifier = Number(value); }, first);
  listen("filter", "change", (value) => { state.filter = value; }, first);
  listen("sort", "change", (value) => { state.sort = value; }, first);
  $("more").addEventListener("click", () => { state.rows += PAGE_ROWS; showImages(); });
  new ResizeObserver(() => { document.documentElement.style.scrollPaddingTop = `${$("controls").offsetHeight + 8}px`; }).observe($("controls"));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  dark.addEventListener("change", recolour);
  showProvenance();
  showClaims();
  window.addEventListener("hashchange", () => { if (location.hash.startsWith("#sigma=")) choose(readState()); });
  await choose(readState());
  showContents();
}

start();
