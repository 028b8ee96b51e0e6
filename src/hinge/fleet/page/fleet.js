// The page of a fleet: asks for the hub's view now and then, and draws what has changed. All text goes in as text.

import { make, orDash, table } from "./elements.js";
import { count, percent } from "./numbers.js";

const EVERY_MS = 2000;
const NAMES = 12, DOUBTED = 6; // that are listed
const MEANINGS = {
  kin: "believed", unlike: "not believed", "other gate": "another gate", silent: "nothing yet", new: "not judged yet",
};

const find = (id) => document.getElementById(id);
let view = null, order = { column: 0, down: false };

// -- elements ---------------------------------------------------------------------------------------------------------

function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The head of a column by which the rows can be sorted. */
function sorter(name, column, number) {
  const button = make("button.sort", name), head = make(number ? "th.number" : "th", button);
  if (order.column === column) head.ariaSort = order.down ? "descending" : "ascending";
  button.type = "button";
  button.onclick = () => {
    order = { column, down: order.column === column ? !order.down : false };
    draw();
  };
  return head;
}

const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** Agreement by bin, as bars on a track; a bin with few offloads has a narrow one, and one with none has no track. */
function bars(offloads, agreements, width, height) {
  const step = width / offloads.length, most = Math.log1p(Math.max(...offloads));
  const path = (tall) => offloads.map((seen, k) => {
    if (!seen) return "";
    const wide = Math.max(1, (step - 1) * Math.log1p(seen) / most), high = Math.max(tall ? height : 1, height * agreements[k] / seen);
    return `M${(step * k + (step - wide) / 2).toFixed(1)} ${height}h${wide.toFixed(1)}v${-high.toFixed(1)}h${-wide.toFixed(1)}z`;
  }).join("");
  const words = offloads.map((seen, k) => seen ? `${k}: ${percent(agreements[k] / seen)} of ${count(seen)}` : "").filter(Boolean);
  const shape = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `agreement by bin: ${words.join(", ")}` });
  shape.append(svg("title", {}, words.join("\n")), svg("path", { class: "rest", d: path(true) }), svg("path", { class: "offloaded", d: path(false) }));
  return shape;
}

// -- parts ------------------------------------------------------------------------------------------------------------

function showTiles({ online, totals, devices, received, dropped, published, region }) {
  const budgets = devices.map(({ evidence }) => evidence?.budget).filter(Boolean), sum = (key) => budgets.reduce((all, each) => all + each[key], 0);
  const { verdicts } = totals, lost = Object.values(dropped).reduce((sum, each) => sum + each, 0);
  const tiles = [
    ["Devices", totals.devices, online ? `${count(totals.online)} online` : "who is online is not known"],
    ["Samples", totals.samples, ""],
    ["Offloaded", totals.offloads, totals.samples ? `${percent(totals.offloads / totals.samples)} of samples` : ""],
    ["Believed", verdicts.kin, "alike"],
    ["Not believed", verdicts.unlike, "their evidence contradicts"],
    ["Other gates", verdicts["other gate"], ""],
    ["Nothing yet", verdicts.silent + verdicts.new, ""],
    ...(budgets.length ? [["Budget left", sum("balance"), `${count(sum("spent"))} spent`]] : []),
    ["Messages", received, `${count(lost)} dropped${region === null ? "" : `, ${count(published)} published`}`],
  ];
  find("tiles").replaceChildren(...tiles.map(([name, value, note]) => make("div", make("dt", name), make("dd", count(value), make("small", note)))));
}

function showDoubted({ devices }) {
  const doubted = devices.filter((each) => each.why !== null), place = find("faults");
  const lines = doubted.slice(0, DOUBTED).map((each) => make("li", make("strong", each.device), `: ${each.why}`));
  if (doubted.length > DOUBTED) lines.push(make("li", `and ${count(doubted.length - DOUBTED)} more, in the table`));
  place.dataset.severe = doubted.length ? "some" : "false";
  place.replaceChildren(...(doubted.length ? [`${plural(doubted.length, "device")} not believed:`, make("ul", ...lines)] : ["All evidence is alike."]));
}

function showPooled({ offloads, agreements }) {
  const place = find("pooled"), seen = offloads.reduce((sum, each) => sum + each, 0);
  if (!seen) {
    place.textContent = "Nothing yet.";
    return;
  }
  place.replaceChildren(bars(offloads, agreements, Math.min(640, place.clientWidth), 120), make("p.note", `${count(Math.round(seen))} offloads, in ${plural(offloads.length, "bin")}`));
}

function showGroups({ groups }) {
  const rows = groups.map((names, k) => {
    const more = names.length > NAMES ? ` … and ${count(names.length - NAMES)} more` : "";
    return [k ? `group ${k + 1}` : "the fleet", count(names.length), names.slice(0, NAMES).join(", ") + more];
  });
  find("groups").replaceChildren(table("Groups of devices whose evidence is alike", ["group", "devices.n", "names"], rows));
}

function showDevices({ devices }) {
  const budget = ({ evidence }) => evidence?.budget ?? null; // of devices that share one
  const shared = devices.some((each) => budget(each) !== null);
  const columns = [
    ["device", (each) => each.device, (value) => value],
    ["online", (each) => each.online, (value) => value === null ? "–" : value ? "yes" : "no"],
    ["samples", (each) => each.samples, count, true],
    ["offloads", (each) => each.offloads, count, true],
    ["agreed", (each) => each.agreement, percent, true],
    ["price", (each) => each.price, (value) => value.toFixed(3), true],
    ...(shared ? ["balance", "spent"].map((key) => [key, (each) => budget(each)?.[key] ?? null, count, true]) : []),
    ["agreement by bin", null, ({ evidence }) => evidence ? bars(evidence.offloads, evidence.agreements, 160, 26) : "–"],
    ["group", (each) => each.group, (value) => String(value + 1), true],
    ["verdict", (each) => each.verdict, (value) => make(`span.who${value === "unlike" ? ".fallback" : value === "kin" ? "" : ".remote"}`, MEANINGS[value])],
    ["why", (each) => each.why, (value) => value],
  ];
  const wanted = find("filter").value.trim().toLowerCase();
  const shown = devices.filter((each) => `${each.device} ${each.verdict} ${MEANINGS[each.verdict]}`.toLowerCase().includes(wanted));
  const by = columns[order.column]?.[1];
  if (by) shown.sort((a, b) => compared(by(a), by(b)) * (order.down ? -1 : 1));
  const heads = columns.map(([name, value, , number], k) => value ? sorter(name, k, number) : name);
  const rows = shown.map((each) => columns.map(([, value, format]) => value ? orDash(value(each), format) : format(each)));
  find("devices").replaceChildren(table(`${count(shown.length)} of ${plural(devices.length, "device")}`, heads, rows));
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === null || b === null) return a === null ? 1 : -1;
  return a < b ? -1 : 1;
}

function showDropped({ dropped }) {
  const rows = Object.entries(dropped).filter(([, times]) => times).map(([reason, times]) => [reason, count(times)]);
  find("dropped").replaceChildren(rows.length ? table("Messages by reason", ["reason", "messages.n"], rows) : "None.");
}

// -- the whole --------------------------------------------------------------------------------------------------------

function draw() {
  if (view === null) return;
  find("title").textContent = `Hinge: fleet ${view.fleet}`;
  for (const show of [showTiles, showDoubted, showPooled, showGroups, showDevices, showDropped]) show(view);
}

function say(state, words) {
  const place = find("connection");
  place.dataset.state = state;
  if (place.textContent !== words) place.textContent = words;
}

let known = "";

async function look() {
  try {
    const answer = await fetch("fleet.json", { cache: "no-cache" }); // which asks whether it has changed
    const text = await answer.text();
    if (text !== known) {
      known = text;
      view = JSON.parse(text);
      draw();
    }
    say(view.online ? "connected" : "away", view.problem ?? (view.online ? "connected to the broker" : "not connected to the broker"));
  } catch {
    say("away", "the hub does not answer");
  }
  setTimeout(look, EVERY_MS);
}

find("filter").addEventListener("input", draw);
new ResizeObserver(() => view && showPooled(view)).observe(document.body);
look();
