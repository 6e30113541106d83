"use strict";
// The page shows what Python computed; this script sorts, filters, unfolds and draws it.

const { config, specs } = JSON.parse(document.getElementById("charts").textContent);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const LEGEND_ENTRY = 200; // pixels

/** Draw a chart; the interpreter of expressions (ast) needs no eval. */
async function draw(place) {
  const columns = Math.max(1, Math.floor((place.clientWidth - 60) / LEGEND_ENTRY));
  const legend = { ...config.legend, columns };
  const options = { actions: false, ast: true, renderer: "svg", config: { ...config, legend } };
  await vegaEmbed(place, specs[place.id], options);
  place.dataset.drawn = "";
}

const visible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    visible.unobserve(target);
    draw(target);
  }
}, { rootMargin: "200px" });

/** Show the blocks of one noise level. */
function show(level) {
  all(".level").forEach((block) => { block.hidden = block.dataset.level !== level; });
  all("[data-show]").forEach((button) => button.setAttribute("aria-pressed", button.dataset.show === level));
}

/** Return the number that a cell begins with, or null. */
function numberOf(text) {
  const found = text.replaceAll(",", "").match(/^[+-]?\d+(\.\d+)?/);
  return found && Number(found[0]);
}

/** Sort the rows of a table by a column: numbers from the largest, text from A; the other way the second time. */
function sort(head) {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const text = (row) => row.cells[head.cellIndex].textContent.trim();
  const numeric = [...body.rows].some((row) => numberOf(text(row)) !== null);
  const first = numeric ? "descending" : "ascending";
  const second = numeric ? "ascending" : "descending";
  const order = head.ariaSort === first ? second : first;
  const sign = order === "ascending" ? 1 : -1;
  const compare = (a, b) => (numeric ? (numberOf(a) ?? -Infinity) - (numberOf(b) ?? -Infinity) : a.localeCompare(b));
  const rows = [...body.rows].sort((a, b) => sign * compare(text(a), text(b)) || 0);
  all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
  head.ariaSort = order;
  body.append(...rows);
}

/** Show the rows that have a text in them. */
function filter(input) {
  const wanted = input.value.toLowerCase();
  for (const row of all("tbody tr", input.parentElement)) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

/** Unfold where the results of a name come from. */
function unfold(name) {
  const details = all("details[data-name]").find((one) => one.dataset.name === name && one.checkVisibility());
  if (!details) return;
  details.open = true;
  details.scrollIntoView();
}

all("th button").forEach((button) => button.addEventListener("click", () => sort(button.parentElement)));
all("input[type=search]").forEach((input) => input.addEventListener("input", () => filter(input)));
all("[data-show]").forEach((button) => button.addEventListener("click", () => show(button.dataset.show)));
all("a[data-name]").forEach((link) => link.addEventListener("click", (event) => {
  event.preventDefault();
  unfold(link.dataset.name);
}));
const results = document.querySelector("a[data-name]")?.closest("table");
if (results) sort(results.tHead.rows[0].cells[1]);
show("0");
all(".chart").forEach((place) => visible.observe(place));
document.documentElement.dataset.ready = "";
