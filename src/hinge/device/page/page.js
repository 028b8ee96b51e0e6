// The live page: keeps what the device tells, and draws it.

import { drawBins, drawCourse } from "./charts.js";
import { showBins, showCompared, showCourse, showFaults, showRecent, showTiles } from "./parts.js";

const SILENCE_MS = 5000; // the device speaks twice a second, so this is no connection any more
const find = (id) => document.getElementById(id);

let report = null, points = [];
let lost = null; // the Unix time at which the connection was lost; null while there is one
let paused = false, drawing = false;
let silence = null;

/** A point as the device tells it, which is numbers only; those of the policies compared come by threes. */
function pointOf([samples, offloads, offload_cost, cost_per_sample, regret, ...compared]) {
  return { samples, offloads, offload_cost, cost_per_sample, regret, compared };
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function draw() {
  drawing = false;
  showAge();
  if (paused || !report) return;
  find("watched").hidden = false;
  showFaults(find("faults"), report, lost);
  showTiles(find("tiles"), report);
  drawBins(find("bins"), find("licences"), report);
  showBins(find("bins-table"), report);
  drawCourse(find, report, points);
  showCourse(find("course-table"), points);
  showCompared(find("compared"), report);
  showRecent(find("recent"), report.recent);
}

/** What may not be so any more looks like it, also while paused. */
function showAge() {
  find("watched").classList.toggle("stale", lost !== null);
  find("now-title").textContent = lost !== null ? "Last known" : "Now";
}

function drawSoon() {
  if (!drawing) {
    drawing = true;
    requestAnimationFrame(draw);
  }
}

// -- the connection, which the browser opens again whatever ends it ---------------------------------------------------

const words = { connected: "connected", away: "not connected, retrying …" };

function changed(state) {
  const shown = find("connection");
  if (shown.dataset.state === state) return;
  shown.dataset.state = state;
  shown.textContent = words[state];
  lost = state === "connected" ? null : Date.now() / 1000;
  drawSoon();
}

const events = new EventSource("events");
events.addEventListener("error", () => changed("away"));
events.addEventListener("message", ({ data }) => {
  clearTimeout(silence);
  silence = setTimeout(() => changed("away"), SILENCE_MS);
  ({ points, ...report } = JSON.parse(data));
  points = points.map(pointOf);
  changed("connected");
  drawSoon();
});

find("pause").addEventListener("click", () => {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  drawSoon();
});
new ResizeObserver(drawSoon).observe(document.body);
