// Charts of the whole path, one above the other on one scale of tokens. Each is a few shapes, however long the path is.

const CHART = 100; // height of a drawing in its own units; a token is one unit wide

/** A chart: a heading with its figures, and a drawing with a mark at the chosen token. */
class Chart {
  constructor(name, choose) {
    this.note = make("span", { class: "note" });
    this.drawing = shape("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
    this.mark = shape("rect", { class: "mark", y: 0, height: CHART, width: 1 });
    this.top = make("span", { class: "top" });
    this.figure = make("figure", {}, make("figcaption", {}, make("b", {}, name), this.note),
      make("div", { class: "plot" }, this.drawing, this.top));
    const at = (event) => Math.floor(event.offsetX / this.drawing.clientWidth * this.length);
    const bounded = (event) => Math.max(0, Math.min(this.length - 1, at(event)));
    this.drawing.addEventListener("click", (event) => choose(bounded(event), true));
    this.drawing.addEventListener("mousemove", (event) => choose(bounded(event), false));
    this.drawing.addEventListener("mouseleave", () => choose(null, false));
  }

  /** Show shapes over so many tokens. */
  show(length, shapes, top, note) {
    this.length = Math.max(1, length);
    this.drawing.setAttribute("viewBox", `0 0 ${this.length} ${CHART}`);
    this.drawing.replaceChildren(...shapes, this.mark);
    this.top.textContent = top;
    this.note.textContent = note;
  }

  select(place) {
    this.mark.setAttribute("x", place);
  }
}

/** A path of bars; each is [place, bottom, top] in shares of the height. */
function bars(values, name) {
  const gap = values.length > 400 ? 0 : 0.08;
  const y = (share) => (CHART * (1 - share)).toFixed(1);
  const drawn = values.map(([at, low, high]) =>
    `M${at + gap} ${y(low)}V${y(high)}h${(1 - 2 * gap).toFixed(2)}V${y(low)}z`);
  return shape("path", { class: name, d: drawn.join("") });
}

/** A filled line over values, one a token; null values have no height. */
function area(values, top, name) {
  const y = (value) => (CHART * (1 - (value || 0) / (top || 1))).toFixed(1);
  const drawn = values.map((value, at) => `L${at} ${y(value)}H${at + 1}`).join("");
  return shape("path", { class: name, d: `M0 ${CHART}${drawn}V${CHART}z` });
}

/** The strip of the metric that colours the text. */
function stripShapes(rows, metric) {
  const found = [[], [], [], [], [], []];
  const values = rows.map((row) => metric.value(row));
  const known = values.filter((value) => value !== null).map(metric.height);
  const top = metric.top || Math.max(1, ...known);
  values.forEach((value, at) => {
    if (value !== null) found[metric.step(value)].push([at, 0, Math.max(0.02, Math.min(1, metric.height(value) / top))]);
  });
  return { shapes: found.map((each, step) => bars(each, "heat" + step)), top };
}

/** Milliseconds of each step, by what took them. Outliers are cut off, so that the rest can be read. */
function timeShapes(rows) {
  const times = rows.map((row) => tokens.ms[row]);
  const totals = times.filter(Boolean).map((each) => each[0]).sort((one, other) => one - other);
  const top = (totals[Math.floor(totals.length * 0.98)] || 1) * 1.1;
  const parts = [[], [], []];
  times.forEach((each, at) => {
    if (!each) return;
    let low = 0;
    [each[1], each[2], Math.max(0, each[0] - each[1] - each[2])].forEach((value, part) => {
      const high = Math.min(1, low + value / top);
      parts[part].push([at, low, high]);
      low = high;
    });
  });
  return { shapes: parts.map((each, part) => bars(each, "part" + part)), top, totals };
}

/** Bytes of the KV cache after each token: the prompt's come with its chunks. */
function cacheShapes(rows) {
  const prompt = rows.filter((row) => !tokens.kv[row]).length;
  const used = [], allocated = [];
  rows.forEach((row, at) => {
    const chunk = data.prefill.find((each) => at < each[0]) || data.prefill[data.prefill.length - 1];
    const told = tokens.kv[row] || (chunk && at < prompt ? [chunk[1], chunk[2]] : [0, 0]);
    used.push(told[0]);
    allocated.push(told[1]);
  });
  const top = Math.max(1, ...allocated, ...used);
  return { shapes: [area(allocated, top, "allocated"), area(used, top, "used")], top, used, allocated };
}
