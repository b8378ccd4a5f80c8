// What was looked at inside the model while the chosen token was predicted, and what a second model makes of it.

const HEAT = [20, 50, 150, 350, 650];
const looked = { head: data.head || 0, open: false, coloured: false, kinds: new Set() };
const articles = [...document.querySelectorAll("#evidence [data-row]")];
const looksAt = new Map();
for (const article of articles) {
  const row = Number(article.dataset.row);
  looksAt.set(row, [...looksAt.get(row) || [], ...article.querySelectorAll(".look")]);
}

/** The row whose forward predicted a token, the token before; at the end of a path that of the last token itself. */
function readAt(row) {
  const last = row === state.rows[state.rows.length - 1];
  return looksAt.has(tokens.parent[row]) || !last ? tokens.parent[row] : row;
}

function attentionOf(row) {
  const [, attention] = data.inside.find(([place]) => place === readAt(row)) || [];
  return attention && attention.length ? attention : null;
}

function insideSections(row) {
  const read = readAt(row), looks = looksAt.get(read), attention = attentionOf(row);
  const own = ({ dataset: { kind, token } }) => (!attention || kind !== "attention")
    && (token === undefined || read === row || Number(token) === tokens.id[row]);
  const sections = (looks || []).filter(own);
  return [
    looks && read === row ? make("p", { class: "hint" }, "What comes after it:") : null,
    attention ? attentionSection(attention) : null,
    ...sections.map(foldedLook),
    secondSection(row),
  ].filter(Boolean);
}

/** A view as it stands in the document, folded under its heading; it stays open from token to token. */
function foldedLook(section) {
  const [head, ...rest] = section.cloneNode(true).children, { kind } = section.dataset;
  return folded(kind, head.textContent, ...rest);
}

function folded(kind, heading, ...content) {
  const details = make("details", { ontoggle: () => {
    if (details.isConnected) looked.kinds[details.open ? "add" : "delete"](kind);
    showLast(details);
  } }, make("summary", {}, heading), ...content);
  details.open = looked.kinds.has(kind);
  return details;
}

/** The last columns of a wide table are those of the token that was looked at: it opens at them. */
function showLast(details) {
  for (const table of details.querySelectorAll(".lens")) table.scrollLeft = table.scrollWidth;
}

/** Both models at one token: how far they are apart, what each gives it, and what each has first. */
function secondSection(row) {
  const found = data.second && data.second.rows[row];
  if (!found) return null;
  const [kl, first, second, rank, other, ...lists] = found;
  const list = [["KL", kl === null ? null : `${kl.toFixed(3)} bits`], ["A", percent(first)], ["B", percent(second)],
    ["rank", rank === null || other === null ? null : `${count(rank)} and ${count(other)}`]];
  const table = (name, candidates) => make("table", { class: "figured" },
    make("thead", {}, make("tr", {}, make("th", { colspan: 2 }, name))),
    make("tbody", {}, ...candidates.map(([label, prob]) => make("tr", {}, make("td", {}, make("span", { class: "label" }, label)), make("td", {}, percent(prob))))));
  return folded("second", "Second model",
    make("dl", { class: "numbers" }, ...list.filter(([, value]) => value !== null && value !== "–").map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
    make("div", { class: "both" }, ...lists.map((candidates, place) => table(`${"AB"[place]}: ${data.second.names[place]}`, candidates))));
}

/** Colour the text by where a head looks; none takes the colours away. */
function showWeights(head) {
  if (!head && !looked.coloured) return;
  looked.coloured = Boolean(head);
  const weights = new Map();
  if (head) for (let n = 2; n < head.length; n += 2) weights.set(head[n], head[n + 1]);
  spans.forEach((span, place) => {
    const step = HEAT.filter((edge) => (weights.get(place) || 0) >= edge).length;
    span.className = head ? `t h${step}` : classes(state.rows[place]);
    if (weights.has(place)) span.title = `${weights.get(place) / 10} %`; else span.removeAttribute("title");
  });
  if (spans[state.chosen]) spans[state.chosen].classList.add("chosen");
}

function attentionSection(heads) {
  const body = make("div");
  const show = (by) => {
    looked.head = (looked.head + by + heads.length) % heads.length;
    const head = heads[looked.head];
    const list = [];
    for (let n = 2; n < head.length; n += 2) list.push([head[n], head[n + 1]]);
    list.sort((one, other) => other[1] - one[1]);
    const by1 = (sign, step) => make("button", { "aria-label": step < 0 ? "Head before" : "Next head", onclick: () => show(step) }, sign);
    body.replaceChildren(
      make("div", { class: "heads" }, by1("←", -1), make("b", {}, `layer ${head[0]}, head ${head[1]}`), by1("→", 1)),
      make("table", { class: "weights" }, make("tbody", {}, ...list.slice(0, 6).map(([place, weight]) =>
        make("tr", {}, make("td", { class: "label" }, tokens.label[state.rows[place]] || ""),
          make("td", {}, `token ${place + 1}`), make("td", {}, `${(weight / 10).toFixed(1)} %`))))),
      make("p", { class: "hint" }, "The text has the colours of these weights. Where a head looks does not tell what it does with it."));
    if (looked.open) showWeights(head);
  };
  const details = make("details", { ontoggle: () => {
    looked.open = details.open;
    if (!details.isConnected) return;
    showWeights(details.open ? heads[looked.head] : null);
  } }, make("summary", {}, "Where the model looked"), body);
  looked.head = Math.min(looked.head, heads.length - 1);
  show(0);
  details.open = looked.open;
  return details;
}

