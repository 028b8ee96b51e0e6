// The live page: keeps what the server tells, and draws it.

import { listen } from "./stream.js";
import { drawBins, drawCourse } from "./charts.js";
import { showBins, showCompared, showCourse, showFaults, showRecent, showRequests, showTiles } from "./parts.js";

const POINTS = 600; // of a history; as many as the server keeps
const SILENT_S = 5;
const find = (id) => document.getElementById(id);

const devices = new Map(); // name → { report, compared, points, silent }
let requests = [];
let told = false; // of all devices, by a server that is there
let lost = null; // the Unix time at which the connection was lost; null while there is one
let paused = false, drawing = false;

// -- what the server tells --------------------------------------------------------------------------------------------

const tellings = {
  hello() {
    devices.clear();
    told = false;
  },
  history({ device, compared, points }) {
    Object.assign(deviceOf(device), { compared: compared.join("\n"), points: points.map(pointOf) });
  },
  report({ report, point }) {
    const device = deviceOf(report.device);
    const before = device.report && device.report.status.samples;
    device.report = report;
    device.silent = false;
    compareWith(device, report.compare.map(({ policy }) => policy).join("\n"));
    addPoint(device.points, pointOf(point), before);
  },
  server(now) { // which follows what is known of the devices
    requests = now.requests;
    told = true;
    for (const [name, seconds] of Object.entries(now.silent_s)) {
      if (devices.has(name)) devices.get(name).silent = seconds > SILENT_S;
    }
  },
};

function deviceOf(name) {
  if (!devices.has(name)) devices.set(name, { report: null, compared: "", points: [], silent: false });
  return devices.get(name);
}

/** A point as the server tells it, which is numbers only; those of the policies compared come by threes. */
function pointOf([samples, offloads, offload_cost, cost_per_sample, regret, ...compared]) {
  return { samples, offloads, offload_cost, cost_per_sample, regret, compared };
}

/** As the server does: what was told of other policies is forgotten when these are other ones. */
function compareWith(device, compared) {
  if (device.compared !== compared) device.points.forEach((point) => { point.compared = []; });
  device.compared = compared;
}

/** As the server does: begin anew with the device, and tell what is long ago in larger steps. */
function addPoint(points, point, before) {
  if (before !== null && point.samples < before) points.length = 0;
  if (points.length && points[points.length - 1].samples === point.samples) points.pop();
  points.push(point);
  if (points.length > POINTS) points.splice(0, points.length, ...points.filter((_, k) => k % 2 === 0));
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function draw() {
  drawing = false;
  showAge();
  if (paused) return;
  showRequests(find("requests"), requests);
  const device = devices.get(chosen());
  find("nobody").hidden = Boolean(device) || !told;
  find("watched").hidden = !device;
  if (!device || !device.report) return;
  const { report, points, silent } = device;
  showFaults(find("faults"), report, silent, lost);
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
  const stale = lost !== null || Boolean(devices.get(find("device").value)?.silent);
  find("watched").classList.toggle("stale", stale);
  find("requests").classList.toggle("stale", lost !== null);
  find("now-title").textContent = stale ? "Last known" : "Now";
}

/** Which device to show; the list of them changes only when they do, so that whoever is choosing is not disturbed. */
function chosen() {
  const select = find("device");
  const names = [...devices].filter(([, device]) => device.report).map(([name]) => name).sort();
  const listed = [...select.options].map((option) => option.value);
  if (names.join("\n") !== listed.join("\n")) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name, false, name === before)));
    select.disabled = names.length === 0;
  }
  return select.value;
}

function drawSoon() {
  if (!drawing) {
    drawing = true;
    requestAnimationFrame(draw);
  }
}

// -- the connection ---------------------------------------------------------------------------------------------------

const words = { connected: "connected", away: "not connected, retrying …" };

function changed(state) {
  const shown = find("connection");
  if (shown.dataset.state === state) return;
  shown.dataset.state = state;
  shown.textContent = words[state];
  lost = state === "connected" ? null : Date.now() / 1000;
  told &&= lost === null;
  drawSoon();
}

function token() {
  return find("entry").hidden ? sessionStorage.getItem("token") : asked();
}

/** The token that somebody enters. */
function asked() {
  return new Promise((entered) => {
    find("entry").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem("token", find("token").value);
      find("entry").hidden = true;
      entered(find("token").value);
    };
    find("token").focus();
  });
}

function refused() {
  find("refused").textContent = sessionStorage.getItem("token") ? "The server refuses this token." : "";
  sessionStorage.removeItem("token");
  find("entry").hidden = false;
}

find("address").textContent = location.origin;
find("device").addEventListener("change", drawSoon);
find("pause").addEventListener("click", () => {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  drawSoon();
});
new ResizeObserver(drawSoon).observe(document.body);
listen("hinge/events", {
  heard(kind, data) {
    tellings[kind](data);
    drawSoon();
  },
  changed, token, refused,
});
