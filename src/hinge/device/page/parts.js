// The parts of the page that are words and numbers.

import { make, orDash, table } from "./elements.js";
import { clock, cost, count, percent } from "./numbers.js";
import { breakEven, costOf, decimalsOf, licenceOf, spanOf, swatch } from "./charts.js";

/** Fill a place only if that changes something: a screen reader reads anew what is replaced. */
function fill(place, key, ...children) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...children);
}

// -- parts ------------------------------------------------------------------------------------------------------------

const offloadsOf = (status) => status.answered_by_remote + sum(status.fell_back);
const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);

/** When an alarm was, as `, since 14:03` or `, 14:03 – 14:10`. */
function span(since, until) {
  if (since === undefined) return "";
  if (until === null) return `, since ${clock(since)}`;
  return clock(since) === clock(until) ? `, ${clock(since)}` : `, ${clock(since)} – ${clock(until)}`;
}

/** What is wrong, in words that change only when it does; counts are elsewhere. What is over is folded away. */
export function showFaults(place, report, lost) {
  const { status, recent } = report;
  const kinds = Object.keys(status.fell_back).sort();
  const now = [
    lost !== null && `Not connected to the device since ${clock(lost)}: what is shown is of then.`,
    status.breaker === "open" && "The breaker is open: the remote is left alone, and local answers.",
    status.breaker === "probing" && "The breaker is probing whether the remote is back.",
    status.not_durable && `What is learned is not safe on disk: ${status.not_durable}`,
    recent.some((each) => each.fault) && "Samples fall back to local answers at present.",
  ].filter(Boolean);
  const alarms = Object.keys(status.alarms).sort().map((alarm) => {
    const [since, until] = status.alarm_times[alarm] ?? [];
    const reason = status.alarm_reasons[alarm] ? `: ${status.alarm_reasons[alarm]}` : "";
    return { lasts: until === null, words: `Alarm: ${alarm}${span(since, until)}${reason}.` };
  });
  const lasting = alarms.filter(({ lasts }) => lasts).map(({ words }) => words);
  const past = [
    kinds.length && `Samples fell back to local answers: ${kinds.join(", ")}.`,
    ...alarms.filter(({ lasts }) => !lasts).map(({ words }) => words),
  ].filter(Boolean);
  const key = [now, lasting, past].map((lines) => lines.join("\n")).join("\n\n");
  const list = (lines) => make("ul", ...lines.map((line) => make("li", line)));
  const parts = now.length + lasting.length ? [list([...now, ...lasting])] : [`No faults${past.length ? " now" : ""}.`];
  if (past.length) parts.push(make("details", make("summary", "Earlier"), list(past)));
  place.dataset.severe = now.length ? "true" : lasting.length ? "some" : "false";
  fill(place, key, ...parts);
}

/** The figures of now; each says which metric it is, with its exact value. */
export function showTiles(place, report) {
  const { status, bins } = report;
  const offloads = offloadsOf(status), licensed = bins.filter((bin) => bin.licensed).length;
  const share = (part, all, words) => all ? `${percent(part / all)} ${words}` : "";
  const agreed = share(status.agreed, status.compared, "of remote's answers");
  const each = status.samples ? `${cost(status.offload_cost / status.samples)} per sample` : "";
  const kinds = Object.entries(status.fell_back).map(([kind, times]) => `${kind} ${count(times)}`).join(", ");
  const tiles = [
    ["Samples", "samples", status.samples, count, `policy ${report.policy}`],
    ["Offloaded", "offloads", offloads, count, share(offloads, status.samples, "of samples")],
    ["Local agreed", "agreed", status.agreed, count, agreed],
    ["Offload cost", "offload_cost", status.offload_cost, count, each],
    ["Cost per sample", "cost_per_sample", report.cost_per_sample, cost, "mistakes included"],
    ["Regret", "regret", report.regret, count, "against the oracle"],
    ["Licensed bins", "licensed_bins", licensed, count, `of ${count(bins.length)}`],
    ["Fell back", "fell_back", sum(status.fell_back), count, kinds],
    ["Breaker", "breaker_open", status.breaker === "closed" ? 0 : 1, () => status.breaker, ""],
  ];
  place.replaceChildren(...tiles.map(([name, metric, value, format, note]) => {
    const unknown = metric === "regret" ? "nothing compared" : "no true labels";
    const figure = make("dd", orDash(value, format), make("small", value === null ? unknown : note));
    if (value !== null) Object.assign(figure.dataset, { metric, value });
    return make("div", make("dt", name), figure);
  }));
}

export function showBins(place, report) {
  if (!place.checkVisibility()) return;
  const even = breakEven(report), decimals = decimalsOf(report.bins);
  const heads = ["confidence", "samples.n", "offloads.n", "agreement.n", "licence", "why"];
  const rows = report.bins.map((bin) => [
    spanOf(bin, decimals), count(bin.samples), orDash(bin.offloads, count), orDash(bin.agreement, percent),
    licenceOf(bin, even), orDash(bin.reason, String),
  ]);
  place.replaceChildren(table("Each bin of confidence", heads, rows));
}

export function showCourse(place, points) {
  if (!place.checkVisibility()) return;
  const step = Math.max(1, Math.ceil(points.length / 12));
  const rows = points.filter((_, k) => (points.length - 1 - k) % step === 0).map((point) => [
    count(point.samples), point.samples ? percent(point.offloads / point.samples) : "–",
    orDash(costOf(point), cost), orDash(point.regret, count),
  ]);
  place.replaceChildren(table("This device so far", ["samples", "offloaded.n", "cost per sample.n", "regret.n"], rows));
}

export function showCompared(place, report) {
  place.hidden = !report.compare.length;
  const { status, cost_per_sample, regret, policy } = report;
  const offload_fraction = status.samples ? offloadsOf(status) / status.samples : null;
  const own = { policy: `${policy} (this device)`, offload_fraction, cost_per_sample, regret };
  const rows = [own, ...report.compare].map((row, order) => [
    make("span.name", swatch(order), row.policy), orDash(row.offload_fraction, percent),
    orDash(row.cost_per_sample, cost), orDash(row.regret, count),
  ]);
  const heads = ["policy", "offloaded.n", "cost per sample.n", "regret.n"];
  place.replaceChildren(table("Policies side by side", heads, rows));
}

export function showRecent(place, recent) {
  const key = recent.length ? `${recent[recent.length - 1].number}` : "none";
  const heads = ["sample", "answer", "who", "confidence", "why"].map((head) => {
    const cell = make("th", head);
    cell.scope = "col";
    return cell;
  });
  const pictured = recent.some((each) => each.picture);
  const body = make("tbody", ...[...recent].reverse().map((each) => recentRow(each, pictured)));
  const head = make("thead", make("tr", ...heads));
  fill(place, key, roles(make("table", make("caption", "The newest first"), head, body)));
}

/** The label, and whether it is the true one where that is known. */
function answerOf({ label, truth }) {
  if (truth === null) return label;
  if (truth !== label) return make("span", make("span.wrong", label), ` (is ${truth})`);
  const right = make("span", "✓");
  Object.assign(right, { role: "img", ariaLabel: "right", title: "right" });
  return make("span", `${label} `, right);
}

function recentRow(each, pictured) {
  const who = each.fault ? ["fallback", "local, fell back"] : [each.source, each.source];
  const picture = make("td.picture", `#${count(each.number)}`);
  if (each.picture) {
    const image = make("img");
    Object.assign(image, { src: each.picture, alt: `sample ${each.number}`, width: 44, height: 44 });
    picture.replaceChildren(image);
  }
  const source = make("td", make(`span.who.${who[0]}`, who[1]));
  const cells = [picture, make("td", answerOf(each)), source, make("td.number", percent(each.confidence))];
  return make(pictured ? "tr" : "tr.plain", ...cells, make("td.why", each.reason));
}

/** Say that it is a table, which a browser forgets when a narrow screen lays it out otherwise. */
function roles(made) {
  const names = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TH: "columnheader", TD: "cell" };
  for (const element of [made, ...made.querySelectorAll("*")]) {
    if (names[element.tagName]) element.setAttribute("role", names[element.tagName]);
  }
  return made;
}
