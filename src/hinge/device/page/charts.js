// Charts as SVG, drawn anew at the width there is, so that letters keep their size. Each has a table beside it.

import { count, percent, short } from "./numbers.js";

const ROW = 22, LABEL = 84, TEXT = 148; // pixels of the chart of bins
const DIGIT = 7; // pixels
const MAX_ROWS = 24, MAX_REASONS = 4;
const DECIMALS = 2, MAX_DECIMALS = 8; // of a confidence; a float of 32 bits has no more
const HEIGHT = 190, LEFT = 46, BOTTOM = 24, TOP = 8; // of a chart over time
const MAX_TICKS = 8;
const BEYOND = 4; // times the device's own: a line that ends higher leaves the chart, and is named below it
const SETTLED = 0.1; // of the samples, after which what is drawn fits; before, everybody asks

/** An element of SVG. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// -- agreement and licences -------------------------------------------------------------------------------------------

/** Below which agreement asking is cheaper; the cost is the known one, or the mean of what offloads cost. */
export function breakEven({ offload_cost, status }) {
  const mean = status.answered_by_remote ? status.offload_cost / status.answered_by_remote : null;
  const cost = offload_cost ?? mean;
  return cost === null ? null : 1 - cost;
}

/** licensed: answers locally. checked: asks, to know enough. offloaded: asks, as local is not good enough. */
export function stateOf(bin, even) {
  if (bin.licensed) return "licensed";
  return bin.agreement !== null && even !== null && bin.agreement <= even ? "offloaded" : "checked";
}

const MEANINGS = {
  licensed: "licensed: local answers",
  checked: "checked: asks, to know enough",
  offloaded: "offloaded: asks, as local is not good enough",
};

/** Whether a bin is licensed, though not for good, and its own agreement does not come up to the line. */
const isBelow = (bin, even) => bin.licensed && bin.samples_left !== null && even !== null && !(bin.agreement > even);

/** Bins taken together: neighbours, where there are more than rows. */
function folded(bins) {
  const together = Math.ceil(bins.length / MAX_ROWS);
  const rows = [];
  for (let first = 0; first < bins.length; first += together) {
    const part = bins.slice(first, first + together);
    const offloads = part.reduce((sum, bin) => sum + (bin.offloads ?? 0), 0);
    const agreed = part.reduce((sum, bin) => sum + (bin.offloads ?? 0) * (bin.agreement ?? 0), 0);
    const licensed = part.filter((bin) => bin.licensed);
    const left = Math.min(...licensed.map((bin) => bin.samples_left ?? Infinity));
    rows.push(part.length === 1 ? part[0] : {
      ...part[0],
      to: part[part.length - 1].to,
      offloads,
      agreement: offloads ? agreed / offloads : null,
      licensed: licensed.length === part.length,
      some: licensed.length ? `${licensed.length} of ${part.length} licensed` : null,
      samples_left: left < Infinity ? left : null,
      marked: part.some((bin) => bin.marked),
      reason: null, // each has its own
    });
  }
  return rows;
}

/** How many decimals tell the edges of bins apart. */
export function decimalsOf(bins) {
  const edges = [...new Set(bins.flatMap(({ from, to }) => [from, to]))];
  const alike = (decimals) => new Set(edges.map((edge) => edge.toFixed(decimals))).size < edges.length;
  let decimals = DECIMALS;
  while (decimals < MAX_DECIMALS && alike(decimals)) decimals += 1;
  return decimals;
}

/** The confidences of a bin. */
export function spanOf(bin, decimals) {
  return `${bin.from.toFixed(decimals)} – ${bin.to.toFixed(decimals)}`;
}

/** Until when a bin answers locally, in words. */
export function licenceOf(bin, even) {
  const mark = bin.marked ? "*" : "";
  if (bin.licensed && bin.samples_left === null) return `licensed${mark} for good`;
  if (bin.licensed) return `licensed${mark}, ${short(bin.samples_left)} left`;
  if (bin.some) return `${bin.some}${mark}`;
  if (bin.offload_probability < 1) return `asks in ${percent(bin.offload_probability)}`;
  return bin.offloads ? stateOf(bin, even) : "checked, unseen";
}

export function drawBins(place, legend, report) {
  const even = breakEven(report);
  if (!legend.children.length) {
    legend.replaceChildren(...Object.entries(MEANINGS).map(([state, words]) => {
      const item = document.createElement("li");
      const sample = { width: 28, height: 14, "aria-hidden": "true" };
      item.append(svg("svg", sample, patterns(), bar(0, 0, 28, 14, state)), words);
      return item;
    }));
  }
  if (!report.bins.length) {
    place.textContent = "There are too many bins to show.";
    return;
  }
  const bins = report.bins.map((bin) => ({ ...bin, marked: isBelow(bin, even) }));
  const rows = folded(bins).reverse(), decimals = decimalsOf(rows); // the surest at the top
  const left = LABEL + 2 * DIGIT * (decimals - DECIMALS);
  const width = place.clientWidth, span = Math.max(40, width - left - TEXT), height = rows.length * ROW + 22;
  const x = (share) => left + span * share;
  const chart = svg("svg", { width, height, role: "img", "aria-label": summary(report.bins, even) }, patterns());
  rows.forEach((bin, row) => chart.append(...binRow(bin, row * ROW, x, span, even, decimals)));
  if (even !== null) {
    const anchor = even > 0.75 ? "end" : even < 0.25 ? "start" : "middle";
    const line = svg("line", { class: "even", x1: x(even), x2: x(even), y1: 0, y2: rows.length * ROW });
    chart.append(line, label(x(even), height - 6, `break-even ${percent(even)}`, anchor));
  }
  place.replaceChildren(chart, ...reasons(bins.filter((bin) => bin.marked)));
}

/** Why the marked bins are licensed. */
function reasons(marked) {
  if (!marked.length) return [];
  const told = marked.filter((bin) => bin.reason).slice(-MAX_REASONS).reverse();
  const note = document.createElement("div");
  note.className = "beyond";
  const lines = [
    "* Licensed by more than its own agreement: bins may testify together.",
    ...told.map((bin) => bin.reason),
    told.length && told.length < marked.length ? "The others' reasons are in the table." : "",
  ];
  note.append(...lines.filter(Boolean).map((line) => {
    const item = document.createElement("p");
    item.textContent = line;
    return item;
  }));
  return [note];
}

function binRow(bin, y, x, span, even, decimals) {
  const state = stateOf(bin, even);
  const parts = [
    label(x(0) - 8, y + 15, spanOf(bin, decimals), "end", "soft"),
    svg("rect", { class: "track", x: x(0), y: y + 3, width: span, height: ROW - 6 }),
    label(x(1) + 8, y + 15, licenceOf(bin, even)),
  ];
  if (bin.agreement !== null) parts.push(bar(x(0), y + 3, Math.max(1, span * bin.agreement), ROW - 6, state));
  const words = `confidence ${spanOf(bin, decimals)}: ${agreementOf(bin)}; ${licenceOf(bin, even)}. ${bin.reason ?? ""}`;
  return [svg("g", {}, svg("title", {}, words), ...parts)];
}

function agreementOf(bin) {
  if (bin.agreement === null) return "no offloads yet";
  return `agreed in ${percent(bin.agreement)} of ${count(bin.offloads ?? 0)} offloads`;
}

function summary(bins, even) {
  const states = bins.map((bin) => stateOf(bin, even));
  const among = (state) => states.filter((each) => each === state).length;
  const counts = `${among("licensed")} are licensed, ${among("checked")} checked and ${among("offloaded")} offloaded`;
  return `Of ${bins.length} bins, ${counts}.`;
}

function bar(x, y, width, height, state) {
  const box = { x, y, width, height };
  const full = svg("rect", { class: state, ...box });
  if (state === "licensed") return full;
  const pattern = svg("rect", { fill: `url(#${state}-pattern)`, ...box });
  return svg("g", {}, full, pattern, svg("rect", { class: `outline ${state}`, ...box }));
}

/** What tells the states apart where colours do not: strokes, dots, or neither. */
function patterns() {
  const size = { width: 8, height: 8, patternUnits: "userSpaceOnUse" };
  const strokes = svg("path", { class: "cut", d: "M-2 2l4 -4M0 8l8 -8M6 10l4 -4" });
  const dots = svg("circle", { class: "dot", cx: 4, cy: 4, r: 1.7 });
  const checked = svg("pattern", { id: "checked-pattern", ...size }, strokes);
  return svg("defs", {}, checked, svg("pattern", { id: "offloaded-pattern", ...size }, dots));
}

function label(x, y, words, anchor = "start", kind = "") {
  return svg("text", { x, y, "text-anchor": anchor, class: kind }, words);
}

// -- over time --------------------------------------------------------------------------------------------------------

/** The courses to draw: the device's own and those it is compared with, each a list of [samples, value]. */
function courses(report, points, own, place) {
  const lines = [{ name: report.policy, points: points.map((point) => [point.samples, own(point)]) }];
  report.compare.forEach(({ policy }, row) => {
    lines.push({ name: policy, points: points.map((point) => [point.samples, point.compared[3 * row + place] ?? null]) });
  });
  const known = ([samples, value]) => samples > 0 && value !== null;
  return lines.map((line, order) => ({ ...line, order, points: line.points.filter(known) }));
}

/** What an answer cost: with mistakes where they are known, else what offloads cost. */
export const costOf = (point) => point.cost_per_sample ?? (point.samples ? point.offload_cost / point.samples : null);

export function drawCourse(find, report, points) {
  const judged = report.cost_per_sample !== null;
  const title = judged ? "Cost per sample so far, mistakes included" : "Cost of offloads, per sample so far";
  find("cost-title").textContent = title;
  const offloads = courses(report, points, (point) => point.samples ? point.offloads / point.samples : null, 0);
  const costs = courses(report, points, costOf, 1);
  drawLines(find("offload-chart"), offloads, percent, "offloaded");
  drawLines(find("cost-chart"), costs, (value) => value.toPrecision(2), "cost per sample");
  drawLines(find("regret-chart"), courses(report, points, (point) => point.regret, 2), short, "regret");
  const named = offloads.length > 1 ? offloads : [];
  find("policies").replaceChildren(...named.map(({ name, order }) => {
    const item = document.createElement("li");
    item.append(swatch(order), order ? name : `${name} (this device)`);
    return item;
  }));
}

const kindOf = (order) => `course s${order % 8} ${order ? "" : "own"}`;

/** A short piece of a policy's line. */
export function swatch(order) {
  const line = svg("path", { class: kindOf(order), d: "M0 6h34" });
  return svg("svg", { width: 34, height: 12, "aria-hidden": "true" }, line);
}

function drawLines(place, lines, format, what) {
  const all = lines.flatMap((line) => line.points);
  if (!all.length) {
    place.textContent = what === "regret" ? "Not known: no other policy decides on these samples." : "Nothing yet.";
    return;
  }
  const width = place.clientWidth, right = width - 8, base = HEIGHT - BOTTOM;
  const last = Math.max(...all.map(([samples]) => samples)), { within, beyond } = parted(lines, last);
  const ticks = scale(within.flatMap((line) => settled(line, last)));
  const low = ticks[0], high = ticks[ticks.length - 1];
  const x = (samples) => LEFT + (right - LEFT) * samples / last;
  const y = (value) => base - (base - TOP) * (value - low) / (high - low);
  const words = `${what} after ${count(last)} samples: ${latest(lines, format)}`;
  const chart = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": words });
  for (const tick of ticks) {
    const line = svg("line", { class: "grid", x1: LEFT, x2: right, y1: y(tick), y2: y(tick) });
    chart.append(line, label(LEFT - 6, y(tick) + 4, format(tick), "end", "soft"));
  }
  chart.append(label(LEFT, HEIGHT - 6, "0", "middle", "soft"));
  chart.append(label(right, HEIGHT - 6, `${short(last)} samples`, "end", "soft"));
  const inner = { x: LEFT, y: TOP - 2, width: right - LEFT, height: base - TOP + 4 }; // an inner svg cuts what is outside
  const plot = svg("svg", { ...inner, viewBox: Object.values(inner).join(" ") });
  for (const { name, order, points } of [...lines].reverse()) { // the device's own on top
    const path = points.map(([samples, value]) => `${x(samples).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
    if (path) plot.append(svg("path", { class: kindOf(order), d: `M${path}` }, svg("title", {}, name)));
  }
  chart.append(plot);
  const note = document.createElement("p");
  note.className = "beyond";
  note.textContent = beyond.length ? `Far above: ${latest(beyond, format)}` : "";
  place.replaceChildren(chart, note);
}

const settled = ({ points }, last) => points.filter(([samples]) => samples >= SETTLED * last).map(([, value]) => value);

/** The lines that fit in one chart with the device's own, and those far above it. */
function parted(lines, last) {
  const most = BEYOND * Math.max(...settled(lines[0], last));
  const above = ({ points }) => most > 0 && points.length > 0 && points[points.length - 1][1] > most;
  return { within: lines.filter((line) => !above(line)), beyond: lines.filter(above) };
}

function latest(lines, format) {
  const drawn = lines.filter((line) => line.points.length);
  return drawn.map(({ name, points }) => `${name} ${format(points[points.length - 1][1])}`).join(", ");
}

/** A few round numbers, from the least value or 0 to the most. */
function scale(values) {
  const low = Math.min(0, ...values), high = Math.max(...values, low + Math.max(1e-6, -low * 1e-9));
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const first = Math.floor(low / step), length = Math.ceil(high / step) - first + 1;
  return Array.from({ length: Math.min(Math.max(2, length), MAX_TICKS) }, (_, k) => (first + k) * step);
}
