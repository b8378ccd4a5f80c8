// The page: the text of a path, its colours, and which token is chosen.

document.body.classList.add("scripted");
const data = JSON.parse(document.getElementById("data").textContent);
const tokens = data.tokens;
looked.head = data.head;
const marks = new Map(data.marks.map((mark) => [mark[0], mark]));
const specials = new Set(tokens.special);
const children = new Map();
tokens.parent.forEach((parent, row) => children.set(parent, [...(children.get(parent) || []), row]));
const at = (id) => document.getElementById(id);

if (data.second) tokens.kl = tokens.node.map((_, row) => (data.second.rows[row] || [null])[0]);
const COLUMN = { probability: "prob", surprisal: "bits", entropy: "entropy", rank: "rank", KL: "kl" };
const TOP = { probability: 1 };
const METRICS = data.metrics.map(({ name, steps, falling }) => ({
  name,
  steps,
  falling,
  top: TOP[name],
  value: (row) => {
    const value = tokens[COLUMN[name]][row];
    return value === null ? null : name === "probability" ? value / 1e6 : value;
  },
  height: name === "rank" ? (value) => Math.log2(value) : (value) => value,
  step: (value) => (value === null ? 0 : steps.filter((edge) => (falling ? value < edge : value >= edge)).length),
}));
METRICS.push({ name: "off", steps: [], value: () => null, height: Number, step: () => 0, top: 1 });

const state = { path: 0, rows: [], chosen: 0, metric: METRICS.find((each) => each.name === "surprisal") };
let spans = [];

// ---- the text -------------------------------------------------------------------------------

function rowsTo(tip) {
  const rows = [];
  for (let row = tip; row >= 0; row = tokens.parent[row]) rows.push(row);
  return rows.reverse();
}

function showPath(path) {
  state.path = path;
  state.rows = rowsTo(data.paths[path].tip);
  const block = document.createDocumentFragment();
  spans = state.rows.map((row, place) => block.appendChild(tokenIn(row, place)));
  at("text").replaceChildren(block);
  showCharts();
  showBranches();
  showTotals();
  at("made").replaceChildren(...data.paths[path].with.map((words) => make("li", {}, words)));
}

/** A token; the space before its word stands apart, so that a line that is broken there ends without a coloured edge. */
function tokenIn(row, place) {
  const text = tokens.text[row];
  const space = text.trim() ? text.length - text.trimStart().length : 0;
  return make("span", { class: classes(row), "data-place": place }, text.slice(0, space), make("i", {}, text.slice(space)));
}

function classes(row) {
  const mark = marks.get(row);
  return [
    "t",
    "h" + state.metric.step(state.metric.value(row)),
    tokens.step[row] ? "" : "prompt",
    specials.has(row) ? "special" : "",
    (children.get(tokens.parent[row]) || []).length > 1 ? "fork" : "",
    mark && (mark[3] || mark[4]) ? "noted" : "",
    mark && mark[2] ? "bookmarked" : "",
  ].filter(Boolean).join(" ");
}

function showMetric(metric) {
  state.metric = metric;
  state.rows.forEach((row, place) => { spans[place].className = classes(row); });
  showLegend();
  showStrip();
  choose(state.chosen);
}

function showLegend() {
  const { metric } = state;
  for (const button of at("metrics").children) button.setAttribute("aria-checked", String(button.value === metric.name));
  const words = metric.steps.map((edge, step) => make("span", { class: "t h" + (step + 1) },
    make("i", {}, (metric.falling ? "<" : "≥") + (metric.name === "probability" ? `${edge * 100} %` : edge))));
  const unit = { surprisal: "bits", entropy: "bits", rank: "rank", KL: "bits" }[metric.name] || "";
  at("legend").replaceChildren(...words, words.length ? ` ${unit}` : "");
}

// ---- choosing -------------------------------------------------------------------------------

/** Choose a token by its place in the path; it stays. */
function choose(place, scroll) {
  place = Math.max(0, Math.min(state.rows.length - 1, place));
  if (spans[state.chosen]) spans[state.chosen].classList.remove("chosen");
  state.chosen = place;
  const span = spans[place];
  if (!span) return;
  span.classList.add("chosen");
  if (scroll) span.scrollIntoView({ block: "nearest" });
  look(place);
  remember();
}

/** Look at a token for as long as the pointer is there; at none: at the chosen one. */
function look(place) {
  const shown = place === null ? state.chosen : place;
  const attention = attentionOf(state.rows[shown]);
  showWeights(looked.open && attention ? attention[Math.min(looked.head, attention.length - 1)] : null);
  for (const span of at("text").querySelectorAll(".seen")) span.classList.remove("seen");
  if (shown !== state.chosen) spans[shown].classList.add("seen");
  at("panel").replaceChildren(...tokenPanel(state.rows[shown], shown, state.rows.length, go));
  for (const chart of Object.values(charts)) chart.select(shown);
}

const go = {
  place: (place) => choose(place, true),
  /** Choose a row, on another path if need be. */
  row: (row) => {
    if (!state.rows.includes(row)) showPath(pathOf(row));
    choose(state.rows.indexOf(row), true);
  },
};

function pathOf(row) {
  return Math.max(0, data.paths.findIndex((path) => rowsTo(path.tip).includes(row)));
}

function remember() {
  const told = `#node=${tokens.node[state.rows[state.chosen]]}&colour=${state.metric.name}`;
  try {
    history.replaceState(null, "", told);
  } catch {
    // some browsers refuse it for files; the page works without
  }
}

/** The row of a step: of the first path that has it. */
function rowOfStep(step) {
  for (const path of data.paths) {
    const row = rowsTo(path.tip).find((each) => tokens.step[each] === step);
    if (row !== undefined) return row;
  }
  return -1;
}

/** What a link asks for: a token by its step or its node, views that are unfolded, and a colour. */
function recall() {
  const told = new URLSearchParams(location.hash.slice(1));
  const metric = METRICS.find((each) => each.name === told.get("colour"));
  if (metric) state.metric = metric;
  for (const kind of told.getAll("tool")) {
    looked.kinds.add(kind);
    looked.open = looked.open || kind === "attention";
  }
  const step = Number(told.get("step"));
  const row = told.has("node") ? tokens.node.indexOf(Number(told.get("node"))) : step ? rowOfStep(step) : data.chosen;
  const begins = tokens.step.findIndex((step) => step > 0);
  return row >= 0 ? row : begins >= 0 ? begins : data.paths[0].tip;
}

// ---- charts, branches, figures --------------------------------------------------------------

const pointed = (place, stay) => (stay ? choose(place, true) : look(place));
const charts = { strip: new Chart("Token by token", pointed), time: new Chart("Time of each step", pointed),
  cache: new Chart("KV cache", pointed) };

function showStrip() {
  const metric = state.metric.name === "off" ? METRICS[1] : state.metric;
  const { shapes } = stripShapes(state.rows, metric);
  charts.strip.show(state.rows.length, shapes, "", metric.name);
}

function showCharts() {
  showStrip();
  const time = timeShapes(state.rows);
  const middle = time.totals[Math.floor(time.totals.length / 2)];
  const parts = middle ? `p50 ${milliseconds(middle)} · model, sampling, inspecting` : "no step yet";
  charts.time.show(state.rows.length, time.shapes, milliseconds(time.top), parts);
  const cache = cacheShapes(state.rows);
  const last = state.rows.length - 1;
  charts.cache.show(state.rows.length, cache.shapes, size(cache.top),
    `${size(cache.used[last])} used of ${size(cache.allocated[last])} allocated`);
  at("charts").replaceChildren(...Object.values(charts).map((chart) => chart.figure));
}

function section(heading, ...children) {
  return make("section", {}, make("h2", {}, heading), ...children);
}

function listed(figures) {
  return make("dl", { class: "figures" },
    ...figures.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** The tokens that were looked at, in the order of the text: each goes to what it predicted. */
function showLooked() {
  const list = articles.map((article) => {
    const row = Number(article.dataset.row), next = article.dataset.next;
    return make("button", { class: "told", onclick: () => {
      for (const look of article.querySelectorAll(".look")) if (look.dataset.kind !== "attention") looked.kinds.add(look.dataset.kind);
      go.row(Number(next === undefined ? row : next));
    } }, make("b", {}, next === undefined ? `${tokens.label[row]} …` : tokens.label[next]),
    make("span", {}, [...article.querySelectorAll("h4")].map((head) => head.textContent).join(" · ")));
  });
  return list.length ? section("Views that were opened", ...list) : null;
}

const parts = { notes: null, branches: make("div"), totals: make("div") };

function showBranches() {
  if (data.paths.length < 2) return;
  const list = data.paths.map((path, place) => make("button",
    { class: "branch", "aria-pressed": String(place === state.path), onclick: () => leave(place) },
    make("b", {}, path.title),
    make("span", { class: "said" }, (path.fork > 1 ? "… " : "") + path.text),
    make("span", { class: "worth" }, `${path.tokens} tokens · perplexity ${path.perplexity || "–"}`)));
  parts.branches.replaceChildren(section("Branches", ...list));
}

/** Go to a path, at the place where it leaves the one on show. */
function leave(path) {
  const before = state.rows;
  showPath(path);
  const parted = state.rows.findIndex((row, place) => row !== before[place]);
  choose(parted < 0 ? state.chosen : parted, true);
}

function showTotals() {
  parts.totals.replaceChildren(section("This path", listed(data.paths[state.path].figures)));
}

function showNotes() {
  const told = data.marks.filter((mark) => mark[3] || mark[4]);
  if (!told.length) return null;
  const list = told.map(([row, name, , note, caption]) => make("button", { class: "told", onclick: () => go.row(row) },
    make("b", {}, tokens.label[row]), make("span", {}, caption || note), name ? make("i", {}, name) : null));
  return section("What to look at", ...list);
}

/** What was found in the session as a whole: the figures, or else all of it. */
function whole() {
  return [...document.querySelectorAll("#evidence article:not([data-row])")].map((article) => {
    const [head, ...rest] = article.children, figures = article.querySelector(".figures");
    return section(head.textContent, ...(figures ? [figures] : rest).map((each) => each.cloneNode(true)));
  });
}

function nextNote(by) {
  const told = data.marks.filter((mark) => mark[3] || mark[4]).map((mark) => mark[0]);
  if (!told.length) return;
  const here = told.indexOf(state.rows[state.chosen]);
  go.row(told[(here + by + told.length + (here < 0 && by < 0 ? 1 : 0)) % told.length]);
}

// ---- begin ----------------------------------------------------------------------------------

function cycle(list, value, by) {
  return list[(list.indexOf(value) + by + list.length) % list.length];
}

const KEYS = {
  ArrowLeft: () => choose(state.chosen - 1, true),
  ArrowRight: () => choose(state.chosen + 1, true),
  Home: () => choose(0, true),
  End: () => choose(state.rows.length - 1, true),
  m: () => showMetric(cycle(METRICS, state.metric, 1)),
  M: () => showMetric(cycle(METRICS, state.metric, -1)),
  "[": () => leave(cycle([...data.paths.keys()], state.path, -1)),
  "]": () => leave(cycle([...data.paths.keys()], state.path, 1)),
  n: () => nextNote(1),
  N: () => nextNote(-1),
};

function begin() {
  const row = recall();
  at("about").textContent = data.model.slice(0, 4).map(([, value]) => value).join(" · ");
  at("source").textContent = data.source;
  at("hints").append(data.marks.length ? make("span", {}, ", ", make("kbd", {}, "n"), " goes to the next note") : "",
    data.paths.length > 1 ? make("span", {}, ", ", make("kbd", {}, "["), " ", make("kbd", {}, "]"), " to another branch") : "");
  at("metrics").append(...METRICS.map((metric) => make("button",
    { value: metric.name, role: "radio", onclick: () => showMetric(metric) }, metric.name)));
  parts.notes = showNotes();
  const facts = make("div", { class: "facts" }, parts.totals, section("Model", listed(data.model)),
    data.settings.length ? section("Settings", listed(data.settings)) : null);
  const alone = data.left_out ? make("p", { class: "hint" }, "The session has other branches, too many for a page.") : null;
  at("more").replaceChildren(...[parts.branches, parts.notes, showLooked(), ...whole(), alone, facts].filter(Boolean));
  showPath(row < tokens.node.length ? pathOf(row) : 0);
  showLegend();
  choose(Math.max(0, state.rows.indexOf(row)), Boolean(location.hash));
}

for (const [kind, follow] of [["click", choose], ["mouseover", look]]) {
  at("text").addEventListener(kind, (event) => {
    const span = event.target.closest("[data-place]");
    if (span) follow(Number(span.dataset.place));
  });
}
at("text").addEventListener("mouseleave", () => look(null));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});
window.addEventListener("hashchange", () => {
  const row = recall();
  showMetric(state.metric);
  if (row < tokens.node.length) go.row(row);
});
begin();
