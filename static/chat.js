// The chat page: the composer, the state of a streaming answer, scrolling that stays where one reads.
const body = document.body;
const composer = document.getElementById("composer");
const again = document.getElementById("again");
const field = document.getElementById("content");
const send = document.getElementById("send");
const log = document.getElementById("log");
const scroll = document.getElementById("scroll");
const conversation = composer.elements.conversation;
let ready = !["starting", "failed"].includes(JSON.parse(body.dataset.status).state);

// -- the draft --------------------------------------------------------------------------------------------------------

const draftKey = () => `draft:${conversation.value}`;

function grow() {
  if (CSS.supports("field-sizing", "content")) return;
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight}px`;
}

function write(text) {
  field.value = text;
  if (text) localStorage.setItem(draftKey(), text);
  else localStorage.removeItem(draftKey());
  grow();
}

field.addEventListener("input", () => write(field.value));
field.value ||= localStorage.getItem(draftKey()) ?? "";
grow();

field.addEventListener("keydown", (event) => {
  const composing = event.isComposing || event.keyCode === 229;
  if (event.key !== "Enter" || event.shiftKey || composing || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  if (!send.disabled) composer.requestSubmit(send);
});

document.addEventListener("click", (event) => {
  const example = event.target.closest("[data-prompt]");
  if (!example) return;
  write(example.dataset.prompt);
  if (send.disabled) field.focus();
  else composer.requestSubmit(send);
});

// -- one answer at a time: idle → asked → streaming → idle ------------------------------------------------------------

let state = "idle";
let turn = "";
let ended = true;
let stopping = false;

function become(next) {
  state = next;
  body.classList.toggle("streaming", state !== "idle");
  log.setAttribute("aria-busy", String(state !== "idle"));
  send.disabled = !ready;
}

document.addEventListener(
  "submit",
  (event) => {
    if (event.target !== composer && event.target !== again) return;
    if (state === "idle" && ready && (event.target === again || field.value.trim())) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  },
  true,
);

for (const form of [composer, again]) {
  form.addEventListener("htmx:before:request", ({ target }) => {
    if (target !== form) return; // the stop button lies in the form
    stopping = false;
    ended = false;
    docked = true;
    end = 0;
    become("asked");
  });
  form.addEventListener("htmx:finally:request", ({ target }) => target === form && state === "asked" && become("idle"));
  form.addEventListener("htmx:after:sse:connection", () => become("streaming"));
  form.addEventListener("turn", (event) => {
    const begun = JSON.parse(event.detail.data);
    turn = begun.turn;
    if (form === composer) write("");
    if (conversation.value !== begun.conversation) {
      conversation.value = begun.conversation;
      history.pushState(null, "", `/c/${begun.conversation}`);
    }
    document.title = `${begun.title || "Conversation"} · popserve`;
    if (form === again) field.focus({ preventScroll: true });
    if (stopping) stop();
  });
  form.addEventListener("end", () => {
    ended = true;
    const reply = log.querySelector(`#t-${CSS.escape(turn)} .prose`);
    document.getElementById("said").textContent = reply ? `Reply: ${reply.textContent.trim()}` : "There is no reply.";
  });
  form.addEventListener("htmx:sse:close", () => {
    become("idle");
    if (!ended) reload();
  });
}

function stop() {
  stopping = true;
  if (state === "streaming" && turn) htmx.ajax("POST", "/chat/stop", { source: "#stop", values: { turn }, swap: "none" });
}

document.getElementById("stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state !== "idle" && !document.querySelector("dialog[open]")) stop();
});

let stale = false;

async function reload() {
  if (!conversation.value || state !== "idle") return;
  stale = true;
  const response = await fetch(`/c/${conversation.value}/turns`).catch(() => null);
  if (!response?.ok) return; // tried again when the server is back
  stale = false;
  await htmx.swap({ sourceElement: log, target: log, swap: "innerMorph", text: await response.text() });
}

body.addEventListener("popserve:back", reload);
body.addEventListener("popserve:status", ({ detail }) => {
  ready = !["starting", "failed"].includes(detail.state);
  document.getElementById("waiting").hidden = ready;
  send.disabled = !ready;
  if (ready && stale) reload();
});
window.addEventListener("popstate", () => location.reload());

// -- scrolling --------------------------------------------------------------------------------------------------------

let docked = true;
let end = 0;
const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;

function follow() {
  if (scroll.scrollTop < end - 2 && !atEnd()) docked = false; // moved up since, though no scroll event has come yet
  if (!docked) return;
  scroll.scrollTo({ top: scroll.scrollHeight, behavior: "instant" });
  end = scroll.scrollTop;
}

scroll.addEventListener("scroll", () => {
  docked = atEnd();
  if (docked) end = scroll.scrollTop;
});
new MutationObserver(follow).observe(log, { childList: true, subtree: true, characterData: true });
new ResizeObserver(follow).observe(scroll);
follow();

// -- small things -----------------------------------------------------------------------------------------------------

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  fetch(`/replies/${button.dataset.reply}/copied`, { method: "POST" }).catch(() => {}); // may count as a quiet "good"
  await navigator.clipboard.writeText(button.dataset.copy);
  button.dataset.done = "";
  setTimeout(() => delete button.dataset.done, 1500);
});

const toggle = document.getElementById("talks-toggle");
const narrow = matchMedia("(max-width: 52rem)");
const talksShown = () => (narrow.matches ? body.classList.contains("talks-open") : !body.classList.contains("talks-closed"));
const tellTalks = () => toggle.setAttribute("aria-expanded", String(talksShown()));
toggle.addEventListener("click", () => {
  if (narrow.matches) body.classList.toggle("talks-open");
  else {
    const closed = body.classList.toggle("talks-closed");
    document.cookie = `talks=${closed ? "closed" : "open"}; path=/; max-age=31536000; samesite=lax`;
  }
  tellTalks();
});
document.querySelector(".chat").addEventListener("click", () => {
  if (body.classList.contains("talks-open")) toggle.click();
});
narrow.addEventListener("change", tellTalks);
tellTalks();
