// The page of `raytide ui`: lanes of workloads on one time axis, explanations, and the effect of a YAML.
//
// Everything that the API returns comes from objects that other users write. It reaches the document only as text (`h` below) or as
// numbers; the Content-Security-Policy makes the browser reject markup as well.

const small = matchMedia("(max-width: 900px), (max-height: 600px)"); // the page scrolls, and what explains it is folded
const narrow = matchMedia("(max-width: 900px)"); // a reason has a line of its own
const rowHeight = () => (narrow.matches ? 68 : 50); // as --row in the style sheet
const PAD = 7; // above and below the chart in a row
const MOST_ROOM = 4; // a maximum that is further above what is wanted would flatten the row
const MARK = 11; // width of a mark
const EXTRA_ROWS = 4;
const SILENCE_MS = 15_000; // the server sends something every 5 s
const LONGEST = 6 * 3600; // what the server keeps
const POINTS = 600; // steps of a lane: a chart has about as many pixels
const MAX_YAML = 256 * 1024;
const SVG = "http://www.w3.org/2000/svg";
const ORDER = ["CanNeverRun", "Waits", "NothingMissing"];
const STEPS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600];

const $ = (id) => document.getElementById(id);

/** An HTML element with these attributes, event handlers and children; strings become text. */
function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== "" && child !== false));
  return element;
}

const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const noun = (lane) => (lane.kind === "TrainingJob" ? "trainer" : "worker");
const keyOf = (lane) => `${lane.kind}/${lane.namespace}/${lane.name}`;
const rowKey = (lane) => (lane.isHeading ? `heading ${lane.namespace}` : lane.isSubmitted ? `submitted ${keyOf(lane)}` : lane.isGroup ? `${keyOf(lane)}/${lane.group}` : keyOf(lane));
const titleOfRow = (lane) => (lane.isGroup ? `${lane.group} of ${lane.namespace}/${lane.name}` : `${lane.namespace}/${lane.name}`);
const kindOfRow = (lane) => (lane.isGroup ? (lane.kind === "TrainingJob" ? "role" : "worker group") : lane.kind);
const isFoldable = (lane) => !lane.isSubmitted && !lane.isGroup && lane.groups.length > 0;

const hasEnded = (lane) => lane.phase === "Succeeded" || lane.phase === "Failed";
/** What the buttons above the rows choose by. */
const stateOf = (lane) => (hasEnded(lane) ? "Finished" : lane.verdict);

function sizeOf(lane) {
  const unit = lane.isGroup && lane.kind === "TrainingJob" ? "pod" : noun(lane);
  const at = lane.phaseSince ? ` ${clock(Date.parse(lane.phaseSince) / 1000)}` : "";
  if (hasEnded(lane)) return `${lane.phase}${at}${lane.needed ? ` · ${plural(lane.needed, unit)}` : ""}`;
  if (lane.phase === "Suspended" && !lane.ready) return `Suspended${at} (${lane.needed} when resumed)`;
  if (lane.ready === null) return `wants ${plural(lane.wanted, unit)}`;
  if (lane.ready > lane.wanted) return `${plural(lane.ready, unit)}, ${lane.wanted} wanted`; // it shrinks
  if (lane.maximum > lane.wanted && lane.ready === lane.wanted) return `${lane.ready} of up to ${plural(lane.maximum, unit)}`;
  if (lane.maximum > lane.wanted) return `${lane.ready} of ${plural(lane.wanted, unit)}, up to ${lane.maximum}`;
  return `${lane.ready} of ${plural(lane.wanted, unit)}`;
}

function clock(seconds, withSeconds = false) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(withSeconds ? { second: "2-digit" } : {}) };
  return new Date(seconds * 1000).toLocaleTimeString([], options);
}

// --- state ------------------------------------------------------------------------------------------------------------------

const state = {
  token: "",
  chosen: "", // namespace that the caller has chosen; empty: all
  lanes: new Map(), // key -> lane with its steps [at, wanted, ready, reason]
  order: [], // what is shown, after filter and sorting
  folded: new Set(), // namespaces whose lanes are hidden below their heading
  unfolded: new Map(), // key -> rows of its worker groups or roles
  ghosts: new Map(), // key -> effect of the YAML, or of a fix, on that workload
  tried: "", // command of the fix whose effect is shown
  submitted: [], // jobs of the YAML
  isListed: false,
  namespace: "",
  since: null, // when the recording began, seconds
  problems: [],
  capacity: null, // what is requested of the nodes
  elsewhere: null, // numbers of the workloads that the caller may not see
  disconnected: null, // since when the API server is away
  lost: null, // since when this page has no connection
  at: null, // time of the last message, seconds
  moment: null, // time that was clicked, seconds
  skew: 0, // server time minus local time, seconds
  focused: "", // key of a row
  open: "", // key of the lane whose explanation is shown, or "what-if"
  yaml: "",
};

const view = { width: 600, rows: new Map(), crosshair: null };

const now = () => Date.now() / 1000 + state.skew;
const chosenWindow = () => Number($("window").value);

/** Seconds that the chart shows: with the longest window no more than was recorded. */
function windowSeconds() {
  const recorded = state.since === null ? 0 : now() - state.since;
  return chosenWindow() === LONGEST ? Math.min(LONGEST, Math.max(60, recorded)) : chosenWindow();
}

// --- address ------------------------------------------------------------------------------------------------------------------

/** The choices that the address has after its `#`: a link shows what was shown when it was copied. */
const FIELDS = ["filter", "sort", "window"];

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("token")) sessionStorage.setItem("token", given.get("token"));
  state.token = sessionStorage.getItem("token") || "";
  state.chosen = sessionStorage.getItem("namespace") || "";
  for (const id of FIELDS) {
    const options = [...($(id).options ?? [])].map((each) => each.value);
    if (given.has(id) && (!options.length || options.includes(given.get(id)))) $(id).value = given.get(id);
  }
  const at = Date.parse(given.get("at") ?? "") / 1000;
  state.moment = Number.isFinite(at) ? at : null;
  state.open = (given.get("open") ?? "").split("/").length === 3 ? given.get("open") : "";
  writeAddress(); // without the token, so that it is in no bookmark and on no screenshot
}

function writeAddress() {
  const found = new URLSearchParams();
  for (const id of FIELDS) {
    const normal = $(id).options ? $(id).options[0].value : "";
    if ($(id).value !== normal) found.set(id, $(id).value);
  }
  if (state.open && state.open !== "what-if") found.set("open", state.open);
  if (state.moment !== null) found.set("at", new Date(state.moment * 1000).toISOString());
  const text = String(found).replaceAll("%2F", "/").replaceAll("%3A", ":");
  history.replaceState(null, "", location.pathname + (text ? `#${text}` : ""));
}

// --- sign in, where each caller has a token of the API server ---------------------------------------------------------------

const hasForm = document.documentElement.dataset.signIn === "form";

function showSignIn(sentence, isNamespace) {
  $("sign-in-problem").textContent = state.token || isNamespace ? sentence : "";
  $("sign-in").hidden = false;
  $("connection").dataset.state = "connecting";
  $("connection").textContent = "signed out";
  document.body.classList.add("signed-out");
  $("namespace").value = state.chosen;
  $(isNamespace ? "namespace" : "token").focus();
}

function signIn(event) {
  event.preventDefault();
  state.token = $("token").value.trim() || state.token;
  state.chosen = $("namespace").value.trim();
  sessionStorage.setItem("token", state.token);
  sessionStorage.setItem("namespace", state.chosen);
  $("token").value = "";
  $("sign-in").hidden = true;
  document.body.classList.remove("signed-out");
  follow();
}

/** Forget the token and what it showed. */
function signOut() {
  sessionStorage.clear();
  location.reload();
}

// --- API --------------------------------------------------------------------------------------------------------------------

async function api(path, options = {}) {
  const headers = { ...(state.token && { Authorization: `Bearer ${state.token}` }), ...options.headers };
  const address = new URL(path, location.origin);
  if (hasForm && state.chosen) address.searchParams.set("namespace", state.chosen);
  // A proxy that signs callers in knows them by its cookie, which only this origin receives.
  return fetch(address, { ...options, headers, credentials: hasForm ? "same-origin" : "omit" });
}

/** The JSON of an answer; throws an error with the server's sentence. */
async function json(path, options) {
  let response;
  try {
    response = await api(path, options);
  } catch {
    throw new Error(hasForm ? "the server of this page cannot be reached" : "raytide ui cannot be reached: is it still running in its terminal?");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error || `the server answered ${response.status}`);
  return body;
}

let following = null;

/** Follow the stream for ever; `restart` begins again, with another window. */
async function follow() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 5000)) {
    const attempt = (following = new AbortController());
    let timer = setTimeout(() => attempt.abort(), SILENCE_MS);
    try {
      const response = await api(`/api/events?window=${chosenWindow()}`, { signal: attempt.signal });
      if ([400, 401, 403].includes(response.status)) return showRejected(response.status, (await response.json()).error);
      if (!response.ok) throw new Error();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(() => attempt.abort(), SILENCE_MS);
        const parts = (text + value).split("\n\n");
        text = parts.pop();
        for (const part of parts) receive(part);
        wait = 250;
      }
    } catch {
      // the connection is lost; the loop begins again
    }
    clearTimeout(timer);
    if (!attempt.isRestart) {
      state.lost ??= now();
      showConnection();
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function restart() {
  if (following) {
    following.isRestart = true;
    following.abort();
  }
}

function receive(part) {
  const begun = performance.now();
  const [first, second] = part.split("\n");
  const message = JSON.parse(second.slice("data: ".length));
  if (message.at < state.at && first !== "event: lanes") return restart(); // the clock was set back: the server has moved the history
  state.at = message.at;
  if (first === "event: lanes") replaceAll(message);
  else applyChanges(message);
  state.lost = null;
  state.isListed = message.isListed;
  state.problems = message.problems;
  state.capacity = message.capacity;
  state.elsewhere = message.elsewhere;
  state.disconnected = message.disconnectedSince;
  if (message.at) state.skew = message.at - Date.now() / 1000;
  arrange();
  showConnection();
  showNotices();
  showCapacity();
  showElsewhere();
  performance.clearMeasures("lanes");
  performance.measure("lanes", { start: begun }); // read by tests
}

function replaceAll(message) {
  if (state.open && $("panel").hidden) explain(state.open); // of the address
  state.lanes = new Map(message.items.map((lane) => [keyOf(lane), lane]));
  state.namespace = message.namespace;
  state.since = message.recordedSince;
  $("scope").textContent = message.namespace ? `namespace ${message.namespace}` : "all namespaces";
  document.title = `${message.namespace || "all namespaces"} · Raytide`;
  for (const key of state.unfolded.keys()) {
    if (state.lanes.has(key)) loadGroups(key);
    else state.unfolded.delete(key);
  }
}

function applyChanges(message) {
  state.since ??= message.at;
  for (const lane of message.changed) {
    const key = keyOf(lane);
    lane.steps = state.lanes.get(key)?.steps ?? [];
    addStep(lane, message.at);
    state.lanes.set(key, lane);
    if (state.unfolded.has(key)) updateGroups(lane, message.at);
    if (state.open === key) explainSoon(key);
  }
  for (const gone of message.removed) {
    state.lanes.delete(keyOf(gone));
    state.unfolded.delete(keyOf(gone));
    if (state.open === keyOf(gone)) explainSoon(keyOf(gone));
  }
}

/** Append what changed, no finer than the resolution, and drop what the window no longer shows. */
function addStep(lane, at) {
  if (lane.ready === null) return;
  const { steps } = lane;
  const last = steps.at(-1);
  const step = [at, lane.wanted, lane.ready, lane.reason];
  if (last && last[1] === step[1] && last[2] === step[2] && last[3] === step[3]) return;
  if (last && at - last[0] < Math.floor(windowSeconds() / POINTS)) steps[steps.length - 1] = [last[0], ...step.slice(1)];
  else steps.push(step);
  const start = at - windowSeconds();
  let old = 0;
  while (old + 1 < steps.length && steps[old + 1][0] <= start) old += 1;
  if (old > 20) steps.splice(0, old);
}

// --- worker groups and roles ------------------------------------------------------------------------------------------------

/** Rows of the groups with their present numbers; steps are those that are known of the same group. */
function groupRows(lane, known, steps = []) {
  const stepsOf = (name) => (known.find((each) => each.group === name) ?? steps.find((each) => each.name === name))?.steps ?? [];
  return lane.groups.map(({ name, wanted, ready, reason }) => ({
    ...{ kind: lane.kind, namespace: lane.namespace, name: lane.name, group: name, isGroup: true },
    ...{ wanted, ready, reason, message: "", verdict: lane.verdict, steps: stepsOf(name) },
  }));
}

function updateGroups(lane, at) {
  const groups = groupRows(lane, state.unfolded.get(keyOf(lane)));
  for (const each of groups) addStep(each, at);
  if (groups.length) state.unfolded.set(keyOf(lane), groups);
  else state.unfolded.delete(keyOf(lane));
}

/** Read the history of the groups; what changes meanwhile comes with the stream. */
async function loadGroups(key) {
  try {
    const { groups } = await json(`/api/groups/${key.split("/").map(encodeURIComponent).join("/")}?window=${chosenWindow()}`);
    const lane = state.lanes.get(key);
    if (!lane || !state.unfolded.has(key)) return;
    const rows = groupRows(lane, [], groups);
    for (const each of rows) addStep(each, Math.floor(now()));
    if (rows.length) state.unfolded.set(key, rows);
    else state.unfolded.delete(key);
    draw();
  } catch (error) {
    announce(error.message);
  }
}

function toggle(key) {
  const lane = state.lanes.get(key);
  if (!lane || !isFoldable(lane)) return;
  if (state.unfolded.delete(key)) {
    if (state.focused.startsWith(`${key}/`)) state.focused = key;
  } else {
    state.unfolded.set(key, groupRows(lane, []));
    loadGroups(key);
  }
  draw();
}

// --- order and filter -------------------------------------------------------------------------------------------------------

const byName = (a, b) => (a.namespace === b.namespace ? (a.name < b.name ? -1 : a.name > b.name ? 1 : 0) : a.namespace < b.namespace ? -1 : 1);
const byAttention = (a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict) || byName(a, b);

function arrange() {
  const all = [...state.lanes.values()];
  const verdict = document.querySelector("#verdicts input:checked").value;
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (lane) => {
    const groups = lane.groups.map((each) => `${each.name} ${each.reason}`).join(" ");
    const text = `${lane.namespace}/${lane.name} ${lane.kind} ${lane.reason} ${lane.message} ${lane.phase} ${lane.priority} ${groups}`.toLowerCase();
    return (!verdict || stateOf(lane) === verdict) && words.every((word) => text.includes(word));
  };
  state.order = all.filter(matches).sort($("sort").value === "name" ? byName : byAttention);
  for (const input of document.querySelectorAll("#verdicts input")) {
    const count = input.value ? all.filter((lane) => stateOf(lane) === input.value).length : all.length;
    input.nextElementSibling.querySelector("b").textContent = count;
  }
  showEmpty(all.length);
  draw();
}

/** What the rows show: the jobs of the YAML first, groups below their workload, and sorted by namespace a heading for each. */
const shown = () => [...state.submitted, ...headed(state.order).flatMap((lane) => [lane, ...((!lane.isHeading && state.unfolded.get(keyOf(lane))) || [])])];

/** The lanes below headings of their namespaces, if they are sorted by these and there are several; without those that are folded. */
function headed(lanes) {
  if ($("sort").value !== "name" || lanes.length === 0 || lanes[0].namespace === lanes.at(-1).namespace) return lanes;
  const found = [];
  for (const lane of lanes) {
    if (found.at(-1)?.namespace !== lane.namespace) found.push({ isHeading: true, namespace: lane.namespace, lanes: [] });
    found.at(-1).lanes.push(lane);
  }
  return found.flatMap((heading) => [heading, ...(state.folded.has(heading.namespace) ? [] : heading.lanes)]);
}

// --- chart ------------------------------------------------------------------------------------------------------------------

function draw() {
  const rows = shown();
  const scroller = $("scroller");
  $("rows").style.height = `${rows.length * rowHeight()}px`;
  $("chart").classList.toggle("with-next", state.ghosts.size + state.submitted.length > 0);
  $("next").textContent = state.tried ? "With the fix" : "If submitted";
  $("chart").style.setProperty("--bar", `${scroller.offsetWidth - scroller.clientWidth}px`);
  view.width = $("axis").clientWidth || 600;
  const time = timeScale();
  drawAxis(time);
  const first = Math.max(0, Math.floor(scroller.scrollTop / rowHeight()) - EXTRA_ROWS);
  const last = Math.min(rows.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / rowHeight()) + EXTRA_ROWS);
  const focusedAt = rows.findIndex((lane) => rowKey(lane) === state.focused);
  if (focusedAt < 0) state.focused = state.order.length ? keyOf(state.order[0]) : "";
  const wanted = new Map(rows.slice(first, last).map((lane, i) => [rowKey(lane), [lane, first + i]]));
  if (focusedAt >= 0) wanted.set(rowKey(rows[focusedAt]), [rows[focusedAt], focusedAt]); // focus survives scrolling
  for (const [key, row] of view.rows) {
    if (!wanted.has(key)) {
      row.remove();
      view.rows.delete(key);
    }
  }
  for (const [key, [lane, index]] of wanted) {
    let row = view.rows.get(key);
    if (!row) {
      row = lane.isHeading ? newHeading(lane.namespace) : newRow(lane);
      view.rows.set(key, row);
      $("rows").append(row);
    }
    row.style.top = `${index * rowHeight()}px`;
    if (lane.isHeading) updateHeading(row, lane);
    else updateRow(row, lane, time);
  }
  drawMoment(time);
  setPositions(rows, wanted);
}

/** The place of each drawn row among its siblings, for screen readers. */
function setPositions(rows, drawn) {
  const count = state.submitted.length + state.order.length;
  let lanes = 0;
  let groups = 0;
  for (const lane of rows) {
    if (lane.isHeading) continue;
    groups = lane.isGroup ? groups + 1 : 0;
    lanes += lane.isGroup ? 0 : 1;
    if (!drawn.has(rowKey(lane))) continue;
    const row = view.rows.get(rowKey(lane));
    row.setAttribute("aria-posinset", lane.isGroup ? groups : lanes);
    row.setAttribute("aria-setsize", lane.isGroup ? state.unfolded.get(keyOf(lane)).length : count);
  }
}

function timeScale() {
  const end = now();
  const start = end - windowSeconds();
  return { start, end, x: (at) => Math.max(0, Math.min(1, (at - start) / (end - start))) * view.width };
}

function drawAxis({ start, end, x }) {
  const axis = $("axis");
  const step = STEPS.find((each) => (view.width * each) / (end - start) >= 84) ?? 3600;
  const parts = [];
  for (const at of ticks(start, end, step)) {
    const label = clock(at, step < 60);
    parts.push(s("line", { x1: x(at), x2: x(at), y1: 24, y2: 30 }));
    if (x(at) > 24 && x(at) < view.width - 62) parts.push(s("text", { x: x(at), y: 19, "text-anchor": "middle" }, label));
  }
  parts.push(s("text", { x: view.width - 8, y: 19, "text-anchor": "end" }, "now"));
  axis.replaceChildren(...parts);
}

function ticks(start, end, step) {
  const offset = step >= 3600 ? new Date(end * 1000).getTimezoneOffset() * 60 : 0;
  const found = [];
  for (let at = Math.ceil((start - offset) / step) * step + offset; at <= end; at += step) found.push(at);
  return found;
}

function newRow(lane) {
  const key = keyOf(lane);
  const row = h(
    "div",
    { class: "row", role: "treeitem", "aria-level": lane.isGroup ? 2 : 1, "aria-selected": "false", tabindex: "-1" },
    h("div", { class: "about" },
      h("div", { class: "name" }, lane.isGroup ? lane.group : `${lane.namespace}/${lane.name}`, h("small", {}, kindOfRow(lane))),
      h("div", { class: "state" }),
      lane.isGroup || lane.isSubmitted ? "" : h("button", { type: "button", class: "fold", tabindex: "-1", hidden: true, click: (event) => {
        event.stopPropagation();
        toggle(key);
      } }, s("svg", { width: 10, height: 10, "aria-hidden": "true" }, s("path", { d: "M2,1l6,4l-6,4z" })))),
    s("svg", { "aria-hidden": "true", focusable: "false" }),
    h("div", { class: "next" }),
  );
  if (!lane.isSubmitted) {
    row.addEventListener("click", (event) => {
      state.focused = rowKey(lane);
      state.moment = event.detail ? timeBelow(event, timeScale()) : null; // a click on the name is at no time
      explain(key);
    });
    row.addEventListener("focus", () => (state.focused = rowKey(lane)));
  }
  row.dataset.key = rowKey(lane);
  return row;
}

/** The heading of a namespace, with a button that hides its lanes. */
function newHeading(namespace) {
  const fold = h("button", { type: "button", class: "fold", "aria-label": `workloads of namespace ${namespace}`, click: () => {
    if (!state.folded.delete(namespace)) state.folded.add(namespace);
    draw();
  } }, s("svg", { width: 10, height: 10, "aria-hidden": "true" }, s("path", { d: "M2,1l6,4l-6,4z" })));
  return h("div", { class: "row heading", role: "none" }, h("div", { class: "about" }, h("div", { class: "name" }, namespace), h("div", { class: "state" }), fold));
}

function updateHeading(row, heading) {
  const count = (verdict) => heading.lanes.filter((lane) => stateOf(lane) === verdict).length;
  const parts = [["CanNeverRun", "can never run"], ["Waits", "waiting"]].map(([verdict, text]) => [count(verdict), text]).filter(([number]) => number);
  const [, sizes, fold] = row.firstChild.children;
  sizes.textContent = [plural(heading.lanes.length, "workload"), ...parts.map(([number, text]) => `${number} ${text}`)].join(" · ");
  fold.setAttribute("aria-expanded", String(!state.folded.has(heading.namespace)));
}

function updateRow(row, lane, time) {
  const key = keyOf(lane);
  row.className = `row ${lane.verdict ?? ""}${lane.isSubmitted ? " ghost" : ""}${lane.isGroup ? " group" : ""}`;
  row.lane = lane;
  const [about, chart, next] = row.children;
  const ghost = lane.isSubmitted ? lane.effect : lane.isGroup ? undefined : state.ghosts.get(key);
  about.firstChild.title = titleOfRow(lane);
  const words = lane.isSubmitted
    ? [h("b", {}, "not submitted"), ` · ${lane.kind === "RayCluster" ? plural(lane.effect.wanted, "worker") : `${lane.effect.minimum} to ${plural(lane.effect.maximum, "trainer")}`}`]
    : [
        h("b", {}, sizeOf(lane)),
        lane.reason ? h("span", { class: "separator" }, " · ") : "",
        lane.reason ? h("span", { class: "reason", title: lane.message }, lane.reason) : "",
        lane.more ? ` and ${lane.more} more` : "",
      ];
  about.children[1].replaceChildren(...words.filter(Boolean));
  updateFold(row, about.children[2], lane);
  const mark = lane.marks?.at(-1);
  const last = mark ? `; ${mark.text} at ${clock(mark.at)}` : "";
  const change = ghost ? `; ${$("next").textContent.toLowerCase()} ${ghost.without} to ${ghost.with}` : "";
  row.setAttribute("aria-label", lane.isSubmitted
    ? `${lane.namespace}/${lane.name}, not submitted: would get ${newSize(ghost)}. ${ghost.reason} ${ghost.message}`
    : `${titleOfRow(lane)}, ${kindOfRow(lane)}: ${sizeOf(lane)}. ${lane.reason} ${lane.message}${last}${change}`);
  row.setAttribute("aria-selected", String(state.open === key && !lane.isSubmitted && !lane.isGroup));
  row.tabIndex = state.focused === rowKey(lane) ? 0 : -1;
  drawLane(chart, lane, ghost, time);
  next.replaceChildren(...(ghost ? nextParts(lane, ghost) : []));
}

function updateFold(row, button, lane) {
  if (!button) return;
  const isUnfolded = String(state.unfolded.has(keyOf(lane)));
  button.hidden = !isFoldable(lane);
  if (button.hidden) return row.removeAttribute("aria-expanded");
  row.setAttribute("aria-expanded", isUnfolded);
  button.setAttribute("aria-expanded", isUnfolded);
  button.setAttribute("aria-label", `${lane.kind === "TrainingJob" ? "roles" : "worker groups"} of ${lane.namespace}/${lane.name}`);
}

/** Pieces of a lane: from, to, wanted, ready, reason; clipped to the window. */
function pieces(lane, { start, end }) {
  const steps = lane.steps ?? [];
  const found = [];
  for (let i = 0; i < steps.length; i += 1) {
    const from = Math.max(steps[i][0], start);
    const to = i + 1 < steps.length ? Math.min(steps[i + 1][0], end) : end;
    if (to > from) found.push({ from, to, wanted: steps[i][1], ready: steps[i][2], reason: steps[i][3] });
  }
  return found;
}

/** Marks of a lane in the window: when it gave or received capacity; a time ahead of the clock is now. */
function marksOf(lane, { start, end }) {
  return (lane.marks ?? []).map((each) => ({ ...each, at: Math.min(each.at, end) })).filter((each) => each.at >= start);
}

/** A triangle with its tip at the middle: down for what was given, up for what was received. */
function markPath(x, hasGiven) {
  return hasGiven ? `M${x - 5.5},3h11l-5.5,9z` : `M${x - 5.5},12h11l-5.5,-9z`;
}

/** The marks without those that would cover one of the same direction. */
function markParts(marks, x) {
  const parts = [];
  const last = { true: -MARK, false: -MARK };
  for (const each of marks) {
    const middle = Math.max(6, Math.min(view.width - 6, x(each.at)));
    if (middle - last[each.gave] < MARK) continue;
    last[each.gave] = middle;
    parts.push(s("path", { class: `mark ${each.gave ? "gave" : "received"}`, d: markPath(middle, each.gave) }));
  }
  return parts;
}

function drawLane(chart, lane, ghost, time) {
  const found = pieces(lane, time);
  const peak = Math.max(1, ghost?.with ?? 0, lane.phase === "Suspended" ? lane.needed : 0, ...found.map((each) => Math.max(each.wanted, each.ready)));
  const hasMaximum = !hasEnded(lane) && lane.maximum > 0 && lane.maximum <= MOST_ROOM * peak;
  const top = hasMaximum ? Math.max(peak, lane.maximum) : peak;
  const bottom = rowHeight() - PAD;
  const y = (value) => bottom - (value / top) * (rowHeight() - 2 * PAD - 1);
  const { x } = time;
  const parts = [];
  const recorded = x(state.since ?? time.end);
  if (recorded > 0.5) parts.push(s("rect", { class: "unrecorded", width: recorded, height: rowHeight() }));
  const step = STEPS.find((each) => (view.width * each) / (time.end - time.start) >= 84) ?? 3600;
  for (const at of ticks(time.start, time.end, step)) parts.push(s("line", { class: "grid", x1: x(at), x2: x(at), y2: rowHeight() }));
  if (found.length) {
    let ready = `M${x(found[0].from)},${bottom}`;
    let wanted = "";
    for (const each of found) {
      ready += `V${y(each.ready)}H${x(each.to)}`;
      wanted += `${wanted ? "V" : `M${x(each.from)},`}${y(each.wanted)}H${x(each.to)}`;
    }
    parts.push(s("path", { class: `ready ${lane.kind}`, d: `${ready}V${bottom}Z` }));
    const gaps = found.filter((each) => each.ready < each.wanted);
    for (const each of gaps) {
      const box = { x: x(each.from), y: y(each.wanted), width: x(each.to) - x(each.from), height: y(each.ready) - y(each.wanted) };
      parts.push(s("rect", { class: "missing", ...box }));
    }
    parts.push(s("path", { class: `wanted ${lane.kind}`, d: wanted }));
    if (hasMaximum) parts.push(s("line", { class: "maximum", x1: x(found[0].from), x2: x(found.at(-1).to), y1: y(lane.maximum), y2: y(lane.maximum) }));
    parts.push(s("text", { class: "scale", x: view.width - 4, y: PAD + 8, "text-anchor": "end" }, top));
    for (const each of reasonsOf(gaps)) {
      const label = `${each.reason}`;
      const room = x(each.to) - x(each.from);
      if (label && room > label.length * 6.6 + 12) parts.push(s("text", { x: x(each.from) + 6, y: Math.min(bottom - 4, y(each.wanted) + 15) }, label));
    }
  } else if (lane.isSubmitted) {
    parts.push(startText(startOf(lane.effect)));
  }
  parts.push(...markParts(marksOf(lane, time), x));
  chart.replaceChildren(...parts);
}

/** What a submitted workload would have, in words. */
function newSize(effect) {
  if (effect.kind === "TrainingJob") return plural(effect.with, "trainer");
  return `${effect.head.scheduled ? "its head" : "no head"} and ${effect.with} of ${plural(effect.wanted, "worker")}`;
}

/** What it would start with, and why not with more: one or two parts. */
function startOf(effect) {
  const isMissing = effect.reason && (effect.kind !== "TrainingJob" || effect.with < effect.maximum);
  const hasPods = effect.with > 0 || effect.head?.scheduled > 0;
  if (!hasPods) return [`would wait${isMissing ? `: ${effect.reason}` : ""}`];
  const start = `would start with ${newSize(effect)}`;
  return isMissing ? [`${start}; `, `not more: ${effect.reason}`] : [start];
}

/** The parts on one line, or on two where the lane is too narrow. */
function startText(words) {
  const isOneLine = words.length === 1 || words.join("").length * 6.6 + 12 < view.width;
  if (isOneLine) return s("text", { x: 10, y: 29 }, words.join(""));
  return s("text", {}, ...words.map((each, line) => s("tspan", { x: 10, y: 21 + 16 * line }, each)));
}

/** Neighbouring gaps with the same reason as one. */
function reasonsOf(gaps) {
  const found = [];
  for (const gap of gaps) {
    const last = found.at(-1);
    if (last && last.reason === gap.reason && last.to === gap.from) last.to = gap.to;
    else found.push({ ...gap });
  }
  return found;
}

function nextParts(lane, ghost) {
  const more = ghost.with - ghost.without;
  const top = Math.max(1, ghost.wanted ?? ghost.maximum, ghost.with, ghost.without);
  const width = 96;
  return [
    h("b", {}, `${ghost.without} → ${ghost.with} `, h("span", { class: more >= 0 ? "more" : "less" }, `${more >= 0 ? "+" : "−"}${Math.abs(more)}`)),
    s("svg", { class: "bar", width, height: 8, viewBox: `0 0 ${width} 8`, "aria-hidden": "true" },
      s("rect", { class: `ready ${lane.kind}`, width: (width * Math.min(ghost.with, ghost.without)) / top, height: 8 }),
      s("rect", { x: 0.5, y: 0.5, width: Math.max(0, (width * ghost.with) / top - 1), height: 7 })),
  ];
}

function showEmpty(count) {
  const box = $("empty");
  box.hidden = state.order.length > 0 || state.submitted.length > 0;
  if (box.hidden) return;
  const where = state.namespace ? `namespace ${state.namespace}` : "this cluster";
  if (!state.isListed) box.replaceChildren(h("h2", {}, state.lost ? "not connected" : "Reading the cluster …"));
  else if (count) box.replaceChildren(h("h2", {}, "No workload matches"), "Change the filter, or show all states.");
  else if (state.problems.length) box.replaceChildren(h("h2", {}, "Nothing to show"), "The message above says what could not be read.");
  else box.replaceChildren(h("h2", {}, `There are neither RayClusters nor TrainingJobs in ${where}`), "They appear here as soon as they are created.", h("br"), h("code", {}, "kubectl apply -f samples/raycluster.yaml"));
}

// --- connection and notices -------------------------------------------------------------------------------------------------

function showConnection() {
  const box = $("connection");
  const [kind, text] = state.lost
    ? ["lost", `not connected to raytide ui since ${clock(state.lost)}, retrying`]
    : state.disconnected
      ? ["lost", `not connected to the API server since ${clock(state.disconnected)}, retrying`]
      : state.isListed
        ? ["live", "live"]
        : ["connecting", "reading the cluster …"];
  if (box.textContent !== text) box.textContent = text;
  box.dataset.state = kind;
}

let noticed = "";

function showNotices() {
  const text = JSON.stringify(state.problems);
  if (text === noticed) return;
  noticed = text;
  $("notices").replaceChildren(...state.problems.map((each) => h("p", { class: "notice" }, h("b", {}, `${each.kind}s ${each.rejected ? "are not shown" : "may be out of date"}:`), each.message)));
}

// --- capacity ---------------------------------------------------------------------------------------------------------------

const PARTS = [
  ["rayClusters", "RayClusters"],
  ["trainingJobs", "TrainingJobs"],
  ["otherPods", "other pods"],
  ["unusable", "on cordoned or unready nodes"],
  ["free", "free"],
];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** An amount of a resource: with a unit for memory, with at most one decimal. */
function amount(resource, number) {
  let unit = 0;
  if (resource === "memory") for (; number >= 1024 && unit < BINARY.length - 1; unit += 1) number /= 1024;
  const text = number.toLocaleString("en", { maximumFractionDigits: number < 100 ? 1 : 0 });
  return resource === "memory" ? `${text} ${BINARY[unit]}` : text;
}

/** The name of a resource: extended ones without their domain, unless two have the same name. */
function resourceName(resource, all) {
  if (resource === "cpu") return "CPU";
  if (resource === "memory") return "Memory";
  const short = resource.split("/").at(-1);
  if (all.some((each) => each.name !== resource && each.name.split("/").at(-1) === short)) return resource;
  return short === "gpu" ? "GPU" : short;
}

let capacityShown = "";

function showCapacity() {
  const text = JSON.stringify(state.capacity);
  if (text === capacityShown) return;
  capacityShown = text;
  const { resources, problem, nodes } = state.capacity ?? { resources: [] };
  $("capacity").hidden = !resources.length && !problem;
  $("resources").replaceChildren(...resources.map((each) => resourceItem(each, resourceName(each.name, resources), nodes)));
  const note = $("capacity-note");
  note.hidden = !problem;
  note.textContent = problem ? `Capacity is not shown, because that needs the right to list and watch nodes and pods in all namespaces: ${problem}` : "";
}

function resourceItem(use, name, nodes) {
  const parts = PARTS.map(([key, label]) => ({ key, label, number: use[key] }));
  const total = parts.reduce((sum, each) => sum + each.number, 0);
  const seen = parts.filter((each) => each.number || each.key === "free");
  if (use.unscheduled) seen.push({ key: "unscheduled", label: "waiting for a node", number: use.unscheduled });
  let at = 0;
  const rects = parts.filter((each) => each.number && each.key !== "free").map((each) => {
    const x = at;
    at += (100 * each.number) / total;
    return s("rect", { class: each.key, x: `${x}%`, width: `${at - x}%`, height: "100%" });
  });
  const words = seen.map((each) => `${amount(use.name, each.number)} ${each.label}`);
  return h(
    "li",
    {},
    h("span", { class: "resource", title: use.name }, name),
    s("svg", { role: "img", "aria-label": `${name}: ${amount(use.name, use.allocatable)} on ${plural(nodes, "node")}: ${words.join(", ")}` }, rects),
    h("span", { class: "numbers", "aria-hidden": "true" }, seen.map((each) => h("span", {}, h("i", { class: each.key }), h("b", {}, amount(use.name, each.number)), ` ${each.label}`))),
  );
}

function showRejected(status, sentence) {
  $("connection").dataset.state = "lost";
  $("connection").textContent = "not connected";
  if (hasForm) {
    forget();
    return showSignIn(sentence ?? "the request was rejected", status !== 401);
  }
  $("notices").replaceChildren(h("p", { class: "notice" }, h("b", {}, "No access:"), sentence ?? "the request was rejected"));
  showEmpty(0);
  $("empty").replaceChildren(h("h2", {}, "Open the address that `raytide ui` printed in its terminal"), "It contains a token, which changes each time the command is started.");
}

/** Drop what the last caller saw. */
function forget() {
  state.lanes = new Map();
  state.unfolded = new Map();
  state.ghosts = new Map();
  state.submitted = [];
  state.problems = [];
  state.capacity = state.elsewhere = state.at = null;
  state.isListed = false;
  closePanel();
  arrange();
  showNotices();
  showCapacity();
  showElsewhere();
  $("sign-out").hidden = true;
}

/** What else the cluster runs, in numbers: the names belong to others. */
function showElsewhere() {
  const { workloads, wanted, ready } = state.elsewhere ?? { workloads: 0 };
  $("elsewhere").hidden = workloads === 0;
  $("elsewhere").textContent = workloads ? `elsewhere: ${plural(workloads, "workload")}, ${ready} of ${wanted} pods ready` : "";
  $("sign-out").hidden = !hasForm || (!state.token && !state.chosen);
}

// --- panel: explanation -----------------------------------------------------------------------------------------------------

let asked = 0;
let soon = null;

function explainSoon(key) {
  clearTimeout(soon);
  soon = setTimeout(() => state.open === key && explain(key, true), 500);
}

async function explain(key, isAgain = false) {
  const number = (asked += 1);
  const [kind, namespace, name] = key.split("/");
  if (!isAgain) {
    openPanel(key, `${namespace}/${name}`, h("p", { class: "dim" }, "reading …"));
    $("panel").focus({ preventScroll: true });
  }
  try {
    const found = await json(`/api/why/${encodeURIComponent(kind)}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
    if (number === asked && state.open === key) renderPanel(titleOf(found), explanation(found));
  } catch (error) {
    if (number === asked && state.open === key) renderPanel(`${namespace}/${name}`, [h("p", { class: "failed" }, error.message)]);
  }
}

function titleOf(found) {
  const name = `${found.object.namespace}/${found.object.name}`;
  if (hasEnded(found)) return `${name} has ${found.phase.toLowerCase()}`;
  if (found.verdict === "NothingMissing") return `Nothing is missing in ${name}`;
  return found.size.ready ? `Why is ${name} not larger?` : `Why does ${name} not run?`;
}

function explanation(found) {
  const first = found.blockers[0];
  const { kind, namespace, name } = found.object;
  const parts = [
    h("p", { class: "summary" }, found.summary),
    found.stages.length ? h("ol", { class: "steps", "aria-label": "From demand to nodes" }, found.stages.map((stage) => stageItem(stage, first))) : "",
  ];
  for (const [title, isPermanent] of [["Can never run", true], ["Waits", false]]) {
    const these = found.blockers.filter((each) => each.permanent === isPermanent);
    if (these.length) parts.push(h("h3", {}, title), ...these.map((each) => blocker(each, each === first)));
  }
  if (found.omitted.blockers) parts.push(h("p", { class: "dim" }, `${found.omitted.blockers} more causes`));
  if (found.changes.length) parts.push(h("h3", {}, "Fixes, each found by a simulation"), ...found.changes.map(fix));
  const dash = (value) => (value === null ? "–" : String(value));
  if (found.groups.length) parts.push(...table("Groups", ["name", "min", "max", "wanted", "pods", "ready", "reason"], found.groups.map((each) => [each.name, each.minimum, each.maximum, each.wanted, each.pods, each.ready, each.reason].map(dash)), found.omitted.groups));
  if (found.pods.length) parts.push(...table("Pods that are not ready", ["pod", "phase", "node", "reason"], found.pods.map((each) => [each.name, each.phase, each.node || "–", [each.reason, each.message].filter(Boolean).join(": ")]), found.omitted.pods));
  const marks = state.lanes.get(keyOf(found.object))?.marks ?? [];
  parts.push(...list("Gave and received", marks.toReversed().map((each) => `${clock(each.at, true)} ${each.text}`)));
  parts.push(...list("Recent warnings", found.events.map((each) => `${each.at ? `${clock(Date.parse(each.at) / 1000)} ` : ""}${each.pod ? `pod ${each.pod}: ` : ""}${each.reason}: ${each.message}`)));
  parts.push(...list("Notes", found.notes), ...list("Not read", found.unreadable.map((each) => each.message)));
  parts.push(h("h3", {}, "Commands"), command(`raytide why ${kind.toLowerCase()}/${name} -n ${namespace}`), ...commandsOf(kind, namespace, name).map(command));
  return parts;
}

function stageItem(stage, first) {
  const isFirst = first !== undefined && stage.stage === first.stage;
  const isBlocked = isFirst || stage.blocked;
  const numbers = [stage.found, stage.wanted].filter((each) => each !== null).join(" / ");
  return h(
    "li",
    { class: `${isBlocked ? "blocked" : ""}${isFirst ? " first" : ""}` },
    h("b", {}, stage.stage),
    h("span", { class: "number" }, numbers),
    h("span", {}, stage.message),
    isBlocked ? h("span", { class: "mark" }, isFirst ? `first blocker: ${first.reason}` : "also blocked") : "",
  );
}

/** Who holds what is short; a workload that has a row is a button that explains it. */
function holders(each) {
  const short = each.shortages.filter((one) => one.holders.length && !each.permanent);
  if (!short.length) return each.holder;
  const named = (one) => (state.lanes.has(keyOf(one)) ? h("button", { class: "link", click: () => explain(keyOf(one)) }, `${one.namespace}/${one.name}`) : `${one.namespace}/${one.name}`);
  return short.flatMap(({ resource, holders: those, moreHolders }, i) => [
    i ? "; " : "",
    ...those.flatMap((one, j) => [j ? ", " : "", named(one), ` (${one.kind}) ${one.amount} ${resource}${one.note ? ` (${one.note})` : ""}`]),
    moreHolders ? ` and ${plural(moreHolders, "more holder")}` : "",
  ]);
}

function blocker(each, isFirst) {
  const details = [each.group && `group ${each.group}`, each.stage, each.since && `since ${clock(Date.parse(each.since) / 1000)}`].filter(Boolean).join(", ");
  const line = (term, text) => (text ? [h("dt", {}, term), h("dd", {}, text)] : []);
  return h(
    "div",
    { class: `blocker${isFirst ? " first" : ""}` },
    h("h4", {}, each.reason, " ", h("span", {}, details)),
    h("div", {}, each.message),
    each.shortages.map((short) => h("div", { class: "short" }, short.message)),
    h("dl", {}, line("held by", holders(each)), line("fix", each.cure)),
  );
}

/** A change that would help, with the command, and a button that shows in the rows what it would do. */
function fix(change) {
  const isTried = state.tried === change.command;
  const attempt = () => {
    clearGhosts();
    if (!isTried) {
      state.tried = change.command;
      state.ghosts = new Map(change.effects.map((effect) => [keyOf(effect), { ...effect, maximum: Math.max(effect.without, effect.with) }]));
      announce(change.effects.map((each) => `${each.namespace}/${each.name}: ${each.without} to ${each.with}`).join(". "));
    }
    draw();
    explain(state.open, true);
  };
  if (!change.command) return h("div", { class: "fix" }, h("p", {}, change.message));
  return h("div", { class: "fix" }, h("p", {}, change.message), command(change.command),
    h("button", { type: "button", "aria-pressed": String(isTried), click: attempt }, isTried ? "Clear" : "Try it"));
}

function table(title, heads, rows, omitted) {
  const body = h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))));
  const found = [h("h3", {}, title), h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), body)];
  return omitted ? [...found, h("p", { class: "dim" }, `${omitted} more`)] : found;
}

const list = (title, lines) => (lines.length ? [h("h3", {}, title), h("ul", {}, lines.map((line) => h("li", {}, line)))] : []);

/** Commands for its logs, and for the dashboard and the jobs of Ray, which then are at port 8265 of this machine. */
function commandsOf(kind, namespace, name) {
  if (kind === "TrainingJob") return [`kubectl logs -n ${namespace} -l raytide.io/training-job=${name} --all-containers --prefix --tail=100`];
  const label = `ray.io/cluster=${name}`;
  return [
    `kubectl logs -n ${namespace} -l ${label} --all-containers --prefix --tail=100`,
    `kubectl port-forward -n ${namespace} $(kubectl get pod -n ${namespace} -l ${label},ray.io/node-type=head -o name) 8265`,
  ];
}

function command(text) {
  const button = h("button", { type: "button", click: async () => {
    await navigator.clipboard.writeText(text).catch(() => getSelection().selectAllChildren(button.previousSibling));
    announce("copied");
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  } }, "Copy");
  return h("div", { class: "command" }, h("code", {}, text), button);
}

function openPanel(key, title, ...parts) {
  state.open = key;
  writeAddress();
  $("panel").hidden = false;
  $("crosshair").hidden = true;
  $("open-what-if").setAttribute("aria-expanded", String(key === "what-if"));
  renderPanel(title, parts);
  draw();
}

function renderPanel(title, parts) {
  const panel = $("panel");
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", click: closePanel }, "✕");
  panel.replaceChildren(h("div", { class: "top" }, h("h2", { id: "panel-title" }, title), close), ...parts);
}

function closePanel() {
  if (!state.open) return;
  const wasWhatIf = state.open === "what-if";
  state.open = "";
  state.moment = null;
  writeAddress();
  if (state.tried) clearGhosts();
  $("panel").hidden = true;
  $("open-what-if").setAttribute("aria-expanded", "false");
  draw();
  if (wasWhatIf) $("open-what-if").focus();
  else focusRow();
}

function announce(text) {
  $("announcement").textContent = text;
}

// --- panel: what if ---------------------------------------------------------------------------------------------------------

function openWhatIf(result = []) {
  const text = h("textarea", { id: "yaml", spellcheck: "false", "aria-label": "YAML of TrainingJobs and RayClusters", placeholder: "apiVersion: paddlepaddle.org/v1\nkind: TrainingJob\n…", input: () => (state.yaml = text.value) });
  text.value = state.yaml;
  const file = h("input", { type: "file", accept: ".yaml,.yml,.json", class: "hidden", tabindex: "-1", "aria-hidden": "true", change: () => readFile(file.files[0]) });
  const hasGhosts = state.ghosts.size + state.submitted.length > 0;
  openPanel(
    "what-if",
    "What would the next sharing passes do?",
    h("p", { class: "dim" }, "Drop a file with TrainingJobs and RayClusters anywhere on this page, or paste it here. Nothing is created. Fair sharing does not size a RayCluster: its pods use free capacity, which jobs then have less of."),
    text,
    h("div", { class: "actions" },
      h("button", { type: "button", class: "main", click: () => submit(text.value) }, "Show the effect"),
      h("button", { type: "button", click: () => file.click() }, "Choose a file …"),
      hasGhosts ? h("button", { type: "button", click: clearGhosts }, "Clear") : "",
      file),
    h("div", { id: "effect" }, result),
  );
}

async function readFile(file) {
  if (!file) return;
  if (file.size > MAX_YAML) return openWhatIf(h("p", { class: "failed" }, `${file.name} is larger than ${MAX_YAML / 1024} KiB`));
  state.yaml = await file.text();
  await submit(state.yaml);
}

async function submit(yaml) {
  state.yaml = yaml;
  openWhatIf(h("p", { class: "dim" }, "computing …"));
  try {
    const found = await json("/api/plan", { method: "POST", body: yaml, headers: { "Content-Type": "application/yaml" } });
    state.tried = "";
    state.submitted = found.submitted.map((effect) => ({ kind: effect.kind, namespace: effect.namespace, name: effect.name, effect, isSubmitted: true }));
    state.ghosts = new Map(found.others.map((effect) => [keyOf(effect), effect]));
    $("scroller").scrollTop = 0;
    showEmpty(state.lanes.size);
    openWhatIf([
      ...list("If it were submitted", found.sentences),
      ...(found.omitted ? [h("p", { class: "dim" }, `${found.omitted} more jobs change`)] : []),
      ...list("Notes", found.notes),
    ]);
    announce(found.sentences.join(". "));
  } catch (error) {
    clearGhosts();
    openWhatIf(h("p", { class: "failed", role: "alert" }, error.message));
  }
}

function clearGhosts() {
  state.tried = "";
  state.ghosts = new Map();
  state.submitted = [];
  showEmpty(state.lanes.size);
  if (state.open === "what-if") openWhatIf();
  else draw();
}

// --- keyboard, pointer, drop ------------------------------------------------------------------------------------------------

function focusRow() {
  const index = shown().findIndex((lane) => rowKey(lane) === state.focused);
  if (index < 0) return;
  const scroller = $("scroller");
  if (index * rowHeight() < scroller.scrollTop) scroller.scrollTop = index * rowHeight();
  if ((index + 1) * rowHeight() > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = (index + 1) * rowHeight() - scroller.clientHeight;
  draw();
  view.rows.get(state.focused)?.focus({ preventScroll: true });
}

function onRowKey(event) {
  const rows = shown().filter((lane) => !lane.isSubmitted && !lane.isHeading);
  const index = rows.findIndex((lane) => rowKey(lane) === state.focused);
  const lane = rows[index];
  const page = Math.max(1, Math.floor($("scroller").clientHeight / rowHeight()) - 1);
  const moves = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: rows.length - 1, PageDown: index + page, PageUp: index - page };
  const isUnfolded = lane !== undefined && state.unfolded.has(keyOf(lane));
  if (event.key in moves && rows.length) {
    const target = Math.max(0, Math.min(rows.length - 1, moves[event.key]));
    state.focused = rowKey(rows[target]);
    focusRow();
  } else if ((event.key === "Enter" || event.key === " ") && lane) explain(keyOf(lane));
  else if (event.key === "ArrowRight" && lane && !lane.isGroup) {
    if (isUnfolded) state.focused = rowKey(rows[index + 1]);
    else toggle(keyOf(lane));
    focusRow();
  } else if (event.key === "ArrowLeft" && isUnfolded) {
    if (lane.isGroup) state.focused = keyOf(lane);
    else toggle(keyOf(lane));
    focusRow();
  } else return;
  event.preventDefault();
}

/** The time below the pointer, in seconds; null beside the chart. */
function timeBelow(event, time) {
  const box = $("axis").getBoundingClientRect();
  if (event.clientX < box.left || event.clientX > box.right) return null;
  return time.start + ((event.clientX - box.left) / box.width) * (time.end - time.start);
}

/** What a lane had at a time, in words. */
function numbersAt(lane, at, time) {
  const piece = pieces(lane, time).find((each) => each.from <= at && at < each.to);
  return piece ? ` · ${sizeOf({ ...lane, ...piece, phase: "" })}${piece.reason ? ` · ${piece.reason}` : ""}` : "";
}

/** A line across the rows at a time, with a text. */
function drawLine(line, at, time, text) {
  line.style.height = `${$("scroller").offsetTop + Math.min($("scroller").clientHeight, shown().length * rowHeight())}px`;
  line.style.left = `${$("axis").getBoundingClientRect().left - $("chart").getBoundingClientRect().left + time.x(at)}px`;
  line.classList.toggle("flipped", time.x(at) > view.width * 0.6);
  line.firstChild.textContent = clock(at, true) + text;
}

/** The time that was clicked, with the numbers of the workload that is explained. */
function drawMoment(time) {
  const line = $("moment");
  line.hidden = state.moment === null || state.moment < time.start || state.moment > time.end;
  if (line.hidden) return;
  const lane = state.lanes.get(state.open);
  drawLine(line, state.moment, time, lane ? ` · ${lane.namespace}/${lane.name}${numbersAt(lane, state.moment, time)}` : "");
}

function onPointer(event) {
  const crosshair = $("crosshair");
  const time = timeScale();
  const at = timeBelow(event, time);
  crosshair.hidden = at === null;
  if (crosshair.hidden) return;
  const row = event.target.closest?.(".row");
  const lane = row?.lane && !row.lane.isSubmitted && row.lane;
  const near = lane ? marksOf(lane, time).filter((each) => Math.abs(time.x(each.at) - time.x(at)) <= MARK / 2 + 1) : [];
  const more = near.length > 1 ? `, and ${near.length - 1} more` : "";
  const text = near.length ? near.at(-1).text + more : "";
  drawLine(crosshair, at, time, (lane ? numbersAt(lane, at, time) : "") + (text ? ` · ${text}` : ""));
}

let dragged = 0;

function onDrag(event) {
  if (!event.dataTransfer?.types.includes("Files") && !event.dataTransfer?.types.includes("text/plain")) return;
  event.preventDefault();
  dragged = Date.now();
  $("drop").hidden = false;
  setTimeout(() => Date.now() - dragged > 250 && ($("drop").hidden = true), 300);
}

function onDrop(event) {
  event.preventDefault();
  $("drop").hidden = true;
  const file = event.dataTransfer.files[0];
  if (file) readFile(file);
  else submit(event.dataTransfer.getData("text/plain"));
}

function onKey(event) {
  if (event.key === "Escape") closePanel();
  else if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    $("filter").focus();
  }
}

/** Capacity and legend are folded on a small page. */
function fold() {
  for (const each of document.querySelectorAll("details")) each.open = !small.matches;
}

function start() {
  readAddress();
  $("rows").addEventListener("keydown", onRowKey);
  $("scroller").addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  $("scroller").addEventListener("pointermove", onPointer, { passive: true });
  $("scroller").addEventListener("pointerleave", () => ($("crosshair").hidden = true));
  $("filter").addEventListener("input", arrange);
  $("filter").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    focusRow();
  });
  $("sort").addEventListener("change", arrange);
  $("verdicts").addEventListener("change", arrange);
  $("window").addEventListener("change", restart);
  for (const id of FIELDS) $(id).addEventListener("input", writeAddress);
  addEventListener("hashchange", () => location.reload()); // another link was opened in this tab
  $("sign-in").addEventListener("submit", signIn);
  $("sign-out").addEventListener("click", signOut);
  $("open-what-if").addEventListener("click", () => (state.open === "what-if" ? closePanel() : (openWhatIf(), $("yaml").focus())));
  addEventListener("keydown", onKey);
  addEventListener("dragenter", onDrag);
  addEventListener("dragover", onDrag);
  addEventListener("drop", onDrop);
  small.addEventListener("change", fold);
  fold();
  new ResizeObserver(() => requestAnimationFrame(draw)).observe($("chart"));
  setInterval(() => !document.hidden && draw(), 1000);
  showConnection();
  showEmpty(0);
  follow();
}

start();
