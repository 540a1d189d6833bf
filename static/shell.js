// Every page: the live status with its ring, the sheet behind it, notices, and the one stream of events.
// Pages' own scripts listen on document.body: popserve:status (detail: the status), popserve:change (something that
// people see has changed), popserve:merged, popserve:back (the server can be reached again, state may be stale), and
// popserve:traffic, :judge, :mark, :opinion, :implicit (detail: what the server's event of that name says).
const body = document.body;
const live = document.getElementById("live");
const banner = document.getElementById("banner");
const notices = document.getElementById("notices");
const sheet = document.getElementById("sheet");
const opener = document.getElementById("status");
const tell = (name, detail) => body.dispatchEvent(new CustomEvent(`popserve:${name}`, { detail }));
let status = JSON.parse(body.dataset.status);

// -- status -----------------------------------------------------------------------------------------------------------

const words = {
  generation: (s) => `gen ${s.generation}`,
  members: (s) => `${s.members} members`,
  count: (s) => String(s.members),
  ratings: (s) => `${s.ratings}/${s.merge_after} ratings`,
  state: (s) => s.state,
  waiting_for: (s) => s.waiting_for,
};

function show(next) {
  const before = status;
  status = next;
  for (const place of document.querySelectorAll("[data-live]")) {
    const text = words[place.dataset.live](next);
    if (place.textContent !== text) place.textContent = text;
  }
  opener.dataset.state = next.state;
  const full = Math.min(100, (100 * next.ratings) / next.merge_after);
  document.getElementById("ring").setAttribute("stroke-dasharray", `${full} 100`);
  if (next.generation !== before.generation) pulse();
  if ((next.last_merge?.merged_at ?? 0) > (before.last_merge?.merged_at ?? 0)) announceMerge();
  tell("status", next);
  const seen = ["state", "generation", "ratings", "rated_members", "members", "merge_after", "profile", "waiting_for"];
  if (seen.some((name) => before[name] !== next[name])) tell("change", next);
}

function pulse() {
  opener.classList.remove("pulse");
  void opener.offsetWidth; // restarts the animation
  opener.classList.add("pulse");
}

function announceMerge() {
  tell("merged");
  if (body.classList.contains("traffic-page")) return; // it shows them anyway, and there are many
  htmx.ajax("GET", "/sheet/merged", { source: notices, target: notices, swap: "beforeend" });
}

// -- notices ----------------------------------------------------------------------------------------------------------

function notice(text, isError = true) {
  const line = document.createElement("p");
  line.className = isError ? "notice error" : "notice";
  line.textContent = text;
  notices.append(line);
}

new MutationObserver((changes) => {
  for (const { addedNodes } of changes) {
    for (const node of addedNodes) {
      if (node instanceof Element) setTimeout(() => node.remove(), node.classList.contains("error") ? 15000 : 9000);
    }
  }
  while (notices.children.length > 3) notices.firstElementChild.remove();
}).observe(notices, { childList: true });
notices.addEventListener("click", (event) => event.target.closest(".notice")?.remove());

document.addEventListener("htmx:before:swap", (event) => {
  const { response, text } = event.detail.ctx;
  if (!response || response.status < 400) return;
  if ((response.headers.get("content-type") ?? "").includes("text/html")) return; // a fragment that says it itself
  event.preventDefault();
  let message = `The server answered ${response.status}.`;
  try {
    message = JSON.parse(text).error.message;
  } catch {}
  notice(message);
});

document.addEventListener("htmx:error", (event) => {
  if (event.target !== live && !(event.detail.error?.name === "AbortError")) {
    notice("The server does not answer. Nothing was sent; try again when it is back.");
  }
});

// -- the stream of events ---------------------------------------------------------------------------------------------

let lost = false;
let patience = 0;

function down(grace) {
  lost = true;
  clearTimeout(patience);
  patience = setTimeout(() => {
    banner.textContent = "The server cannot be reached. This page tries again by itself; what was sent is kept.";
    banner.hidden = false;
  }, grace);
}

function up() {
  if (!lost) return;
  clearTimeout(patience);
  lost = false;
  banner.hidden = true;
  tell("back");
}

live.addEventListener("status", (event) => {
  if (live._htmx?.sse) live._htmx.sse.config.reconnectDelay = 300; // then twice as long each time, up to the limit
  show(JSON.parse(event.detail.data));
});
for (const name of ["traffic", "judge", "mark", "opinion", "implicit"]) {
  live.addEventListener(name, (event) => tell(name, JSON.parse(event.detail.data)));
}
live.addEventListener("resync", () => tell("back"));
live.addEventListener("settings", () => tell("change", status));
live.addEventListener("htmx:after:sse:connection", (event) => {
  if (event.detail.connection.status === 200) up();
});
live.addEventListener("htmx:sse:error", () => document.hidden || banner.hidden === false || down(700));
live.addEventListener("htmx:before:sse:connection", (event) => {
  if (event.detail.connection.attempt > 0 && !document.hidden && !lost) down(4000);
});
// A first connection that fails is not tried again by the extension.
const again = () => setTimeout(() => live._htmx?.sse || htmx.trigger(live, "popserve:connect"), 3000);
live.addEventListener("htmx:error", () => (down(700), again()));
live.addEventListener("htmx:response:error", () => (down(700), again()));
live.addEventListener("htmx:sse:close", again);

// -- the sheet --------------------------------------------------------------------------------------------------------

opener.addEventListener("click", async () => {
  await htmx.ajax("GET", "/sheet", { source: opener, target: sheet, swap: "innerHTML" });
  if (sheet.childElementCount && !sheet.open) sheet.showModal();
});
sheet.addEventListener("click", (event) => event.target === sheet && sheet.close());
sheet.addEventListener("close", () => htmx.swap({ sourceElement: sheet, target: sheet, text: "", swap: "innerHTML" }));

document.addEventListener("click", (event) => {
  if (!event.target.closest("#theme")) return;
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  tell("theme");
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => tell("theme"));
