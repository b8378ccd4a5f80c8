// The panel beside the text: one token, what else could have come, and how it was drawn.

/** The candidates of a row, unpacked. */
function candidates(row) {
  const packed = tokens.candidates[row];
  if (!packed) return null;
  const [words, probs, drawn, cuts, others, mass, ranks, drawnMass = mass] = packed;
  const rank = new Map(ranks);
  let inside = 0;
  const list = words.map((word, place) => {
    const cut = cuts && cuts[place] !== "." ? data.stages[parseInt(cuts[place], 36)] : null;
    const [id, label] = data.words[word];
    const share = cut ? 0 : drawn ? drawn[inside++] : probs[place];
    return { id, label, prob: probs[place], drawn: share, cut, rank: rank.get(place) || place + 1 };
  });
  return { list, others, mass, drawnMass };
}

/** The token of another branch that took a candidate, if one did. */
function branchOf(row, id) {
  const found = (children.get(tokens.parent[row]) || []).find((other) => tokens.id[other] === id);
  return found === undefined ? null : found;
}

function tokenPanel(row, at, length, go) {
  const found = candidates(row);
  return [
    heading(row, at, length, go),
    remarks(row),
    numbers(row),
    drawing(row, found),
    found ? candidateTable(row, found, go) : make("p", { class: "hint" }, "No candidates were recorded for this token."),
    stages(row),
    ...insideSections(row),
  ].filter(Boolean);
}

/** The address of a token, with the views that are unfolded: it opens the page there. */
function linkOf(row) {
  const kinds = [...looked.kinds, ...looked.open ? ["attention"] : []].map((kind) => `&tool=${kind}`);
  return `#node=${tokens.node[row]}${kinds.join("")}`;
}

function heading(row, at, length, go) {
  const made = data.made[tokens.made[row]];
  const where = tokens.step[row] ? `step ${tokens.step[row]}` : "prompt";
  const by = (title, to, sign) =>
    make("button", { title, "aria-label": title, disabled: to < 0 || to >= length, onclick: () => go.place(to) }, sign);
  return make("div", { class: "heading" },
    make("div", {},
      make("div", { class: "token" }, tokens.label[row]),
      make("div", { class: "where" }, `${where} · token ${at + 1} of ${length} · ${made} · id ${tokens.id[row]}`),
      tokens.with[row] ? make("div", { class: "with" }, `made with ${data.conditions[tokens.with[row]]}`) : null),
    make("div", { class: "steps" },
      make("a", { href: linkOf(row), title: "Link to this token", "aria-label": "Link to this token" }, "#"),
      by("Token before", at - 1, "←"), by("Token after", at + 1, "→")));
}

function remarks(row) {
  const mark = marks.get(row);
  if (!mark) return null;
  const [, name, bookmarked, note, caption] = mark;
  return make("div", { class: "remarks" },
    caption ? make("p", { class: "caption" }, caption) : null,
    note ? make("p", { class: "note" }, note) : null,
    name || bookmarked ? make("p", { class: "name" }, [bookmarked ? "★" : "", name].filter(Boolean).join(" ")) : null);
}

function numbers(row) {
  const list = [
    ["probability", percent(tokens.prob[row])],
    ["after the sampler", tokens.step[row] ? percent(tokens.drawn[row]) : null],
    ["surprisal", tokens.bits[row] === null ? null : bits(tokens.bits[row]) + " bits"],
    ["rank", tokens.rank[row] === null ? null : count(tokens.rank[row])],
    ["model entropy", tokens.entropy[row] === null ? null : bits(tokens.entropy[row]) + " bits"],
  ];
  const ms = tokens.ms[row], kv = tokens.kv[row];
  if (ms) list.push([(ms[4] ? "time, pipelined" : "time") + (ms[5] ? ", cold start" : ""), milliseconds(ms[0])]);
  if (kv) list.push(["KV cache", size(kv[0])]);
  const known = list.filter(([, value]) => value !== null && value !== "–");
  return make("dl", { class: "numbers" },
    ...known.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/** The line from 0 to 1 that the random number fell on, cut into the candidates' shares. */
function drawing(row, found) {
  const told = tokens.draw[row];
  if (!told || !found || tokens.drawn[row] === null) return null;
  const [draw, from, to] = told;
  const taken = data.made[tokens.made[row]];
  if (draw === null || from === null || (taken !== "sampled" && taken !== "re-rolled")) return null;
  const svg = shape("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(shape("rect", { class: "rest", x: .5, y: 8, width: 999, height: 10 }));
  let edge = 0;
  const shares = found.list.map((each) => each.drawn).filter((share) => share > 0).sort((one, other) => other - one);
  shares.forEach((share, place) => {
    const width = share / 1000;
    svg.append(shape("rect", { class: place % 2 ? "odd" : "even", x: edge, y: 8, width, height: 10 }));
    edge += width;
  });
  svg.append(shape("rect", { class: "taken", x: from * 1000, y: 8, width: Math.max(1.5, (to - from) * 1000), height: 10 }));
  svg.append(shape("rect", { class: "drawn", x: draw * 1000 - 1.5, y: 0, width: 3, height: 26 }));
  const again = told[3] ? `, drawn again ${told[3]}×` : "";
  return make("div", { class: "draw" },
    make("p", {}, `The draw ${cut(draw)} fell on ${cut(from)} to ${cut(to)}${again}`), svg);
}

function candidateTable(row, found, go) {
  const body = make("tbody");
  const most = Math.max(...found.list.map((each) => Math.max(each.prob || 0, each.drawn || 0)), 1);
  const prompt = !tokens.step[row];
  for (const each of found.list) body.append(candidateLine(row, each, most, prompt, go));
  if (found.others > 0) {
    body.append(make("tr", { class: "others" }, make("td"), make("td", {}, `${count(found.others)} others`),
      make("td"), make("td", {}, percent(found.mass)), make("td", {}, prompt ? "" : percent(found.drawnMass))));
  }
  const head = ["", "candidate", "", "model", prompt ? "" : "sampler"].map((each) => make(each ? "th" : "td", {}, each));
  return make("table", { class: "candidates" }, make("thead", {}, make("tr", {}, ...head)), body);
}

function candidateLine(row, each, most, prompt, go) {
  const taken = each.id === tokens.id[row];
  const branch = taken ? null : branchOf(row, each.id);
  const label = branch === null ? make("span", {}, each.label)
    : make("button", { class: "link", title: "Go to this branch", onclick: () => go.row(branch) }, each.label);
  const sampler = prompt ? "" : each.cut ? each.cut : percent(each.drawn);
  return make("tr", { class: taken ? "taken" : each.cut ? "cut" : "" },
    make("td", {}, taken ? "▶" : branch === null ? "" : "⑂"),
    make("td", { class: "label", title: `id ${each.id}, rank ${each.rank}` }, label),
    make("td", { class: "bar" }, barOf(each, most, prompt)),
    make("td", {}, percent(each.prob)),
    make("td", {}, sampler));
}

/** Two bars in one: what the model gives, and inside it, or beyond it, what the sampler draws with. */
function barOf(each, most, prompt) {
  const svg = shape("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(shape("rect", { class: "model", y: 1, height: prompt ? 12 : 7, width: 100 * (each.prob || 0) / most }));
  if (!prompt) svg.append(shape("rect", { class: "sampler", y: 9, height: 4, width: 100 * (each.drawn || 0) / most }));
  return svg;
}

function stages(row) {
  const told = tokens.draw[row];
  if (!told || !told[4].length) return null;
  const list = told[4].map(([name, kept, mass]) => {
    const took = mass ? `, took out ${percent(mass)}` : "";
    return make("li", {}, make("b", {}, name), ` left ${count(kept)} token${kept === 1 ? "" : "s"}${took}`);
  });
  return make("details", {}, make("summary", {}, "The sampler's stages"), make("ol", { class: "stages" }, ...list));
}
