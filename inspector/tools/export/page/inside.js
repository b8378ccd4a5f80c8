// What was looked at inside the model while the chosen token was predicted: where heads look, and the logit lens.

const HEAT = [20, 50, 150, 350, 650];
const looked = { head: 0, open: false, lens: false, coloured: false };

/** Attention and lens of the forward that predicted a token: that of the token before. */
function insideOf(row) {
  const [, attention, lens] = data.inside.find(([place]) => place === tokens.parent[row]) || [];
  return { attention: attention && attention.length ? attention : null, lens: lens && lens.length ? lens : null };
}

function insideSections(row) {
  const { attention, lens } = insideOf(row);
  return [attention ? attentionSection(attention) : null, lens ? lensSection(lens) : null].filter(Boolean);
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

function lensSection(columns) {
  const count = Math.max(...columns.map((column) => column[1].length));
  const rows = [];
  for (let layer = count - 1; layer >= 0; layer--) {
    rows.push(make("tr", {}, make("th", {}, layer ? String(layer) : "emb"),
      ...columns.map(([, cells]) => {
        const [label, prob, rank] = cells[layer] || ["", null, 0];
        return make("td", { class: rank === 1 ? "leads" : "", title: prob === null ? "" : percent(prob) }, label);
      })));
  }
  const head = make("tr", {}, make("th"), ...columns.map(([row]) => make("th", {}, row < 0 ? "" : tokens.label[row])));
  const details = make("details", { ontoggle: () => { looked.lens = details.open; } },
    make("summary", {}, "What each layer would predict"),
    make("div", { class: "lens" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))),
    make("p", { class: "hint" }, "Bold: the layer ranks first what the last layer does. Early layers were not trained to be read so."));
  details.open = looked.lens;
  return details;
}
