// Draws the server's figures with Plotly and redraws those that an event has changed (the events that a chart names).
// Zoom and hidden traces survive, because a figure's uirevision stays the same.
const body = document.body;
const query = document.querySelector("[data-charts]").dataset.charts; // which run, for example
const charts = new Map([...document.querySelectorAll("[data-panel]")].map((place) => [place.dataset.panel, place]));
const figures = new Map();
const options = {
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};

// -- colours ----------------------------------------------------------------------------------------------------------

const probe = document.createElement("span");
probe.hidden = true;
body.append(probe);

function color(name) {
  probe.style.color = name;
  return getComputedStyle(probe).color;
}

function painted(value, seen = new Map()) {
  if (typeof value === "string") {
    if (!value.startsWith("var(--")) return value;
    if (!seen.has(value)) seen.set(value, color(value));
    return seen.get(value);
  }
  if (Array.isArray(value)) return typeof value.at(-1) === "number" ? value : value.map((item) => painted(item, seen));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, painted(item, seen)]));
  }
  return value;
}

// Bars with numbers for colours: Plotly draws them and complains, so the ramp is applied here.
function ramp({ color: numbers, colorscale, cmin, cmax }) {
  const stops = colorscale.map(([at, name]) => [at, name.match(/[\d.]+/g).map(Number)]);
  return numbers.map((number) => {
    const at = Math.min(1, Math.max(0, (number - cmin) / (cmax - cmin)));
    const above = Math.max(1, stops.findIndex(([stop]) => stop >= at));
    const [[from, a], [to, b]] = [stops[above - 1], stops[above]];
    return `rgb(${[0, 1, 2].map((i) => Math.round(a[i] + ((b[i] - a[i]) * (at - from)) / (to - from)))})`;
  });
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function local(milliseconds) {
  const moment = new Date(milliseconds);
  return new Date(milliseconds - moment.getTimezoneOffset() * 60000).toISOString().slice(0, -1);
}

async function draw(name) {
  const { data, layout } = painted(figures.get(name));
  layout.font.family = getComputedStyle(body).fontFamily;
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // a finger scrolls the page
  for (const { type, marker } of data) {
    if (type === "bar" && marker.colorscale) Object.assign(marker, { color: ramp(marker), colorscale: undefined });
  }
  if (layout.xaxis.type === "date") {
    for (const trace of data) trace.x = trace.x.map(local);
    for (const shape of layout.shapes ?? []) shape.x0 = shape.x1 = local(shape.x0);
    for (const note of layout.annotations ?? []) if (note.xref === "x") note.x = local(note.x);
  }
  const narrow = charts.get(name).clientWidth < 480; // marks would be named over one another
  for (const note of layout.annotations ?? []) if (narrow && note.hovertext) note.text = "·";
  await Plotly.react(charts.get(name), data, layout, options);
}

const dirty = new Set();
let busy = false;

async function update() {
  if (busy || document.hidden || !dirty.size) return;
  busy = true;
  const names = [...dirty];
  dirty.clear();
  try {
    const wanted = new URLSearchParams(query);
    names.forEach((name) => wanted.append("panel", name));
    const response = await fetch(`/dashboard/figures.json?${wanted}`);
    if (!response.ok) throw new Error(`${response.status}`);
    const { sentence, panels } = await response.json();
    say("sentence", sentence);
    for (const [name, { answer, figure }] of Object.entries(panels)) {
      say(`answer-${name}`, answer);
      figures.set(name, figure);
      await draw(name);
      fill(document.querySelector(`[data-table="${name}"]`));
    }
  } catch {
    names.forEach((name) => dirty.add(name)); // with the next event, or when the server is back
  }
  setTimeout(() => {
    busy = false;
    update();
  }, 1000);
}

function say(id, text) {
  const place = document.getElementById(id);
  if (place && place.textContent !== text) place.textContent = text;
}

function touch(...names) {
  names.forEach((name) => dirty.add(name));
  update();
}

function fill(details) {
  if (!details.open) return;
  const place = details.querySelector(".table");
  htmx.ajax("GET", `/dashboard/tables/${details.dataset.table}?${query}`, { source: place, target: place, swap: "innerMorph" });
}

for (const details of document.querySelectorAll("[data-table]")) details.addEventListener("toggle", () => fill(details));

// -- what changes what ------------------------------------------------------------------------------------------------

const all = [...charts.keys()];
for (const event of ["status", "merged", "change", "mark", "traffic"]) {
  const moved = all.filter((name) => charts.get(name).dataset.on.split(" ").includes(event));
  if (moved.length) body.addEventListener(`popserve:${event}`, () => touch(...moved));
}
body.addEventListener("popserve:back", () => touch(...all));
body.addEventListener("popserve:theme", () => figures.forEach((_, name) => draw(name)));
document.addEventListener("visibilitychange", update);
touch(...all);
