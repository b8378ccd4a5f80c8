// A lesson's page: one beat at a time. It asks, waits until the reader has predicted, and then shows what came.

const at = (id) => document.getElementById(id);
const beats = [...document.querySelectorAll(".beat")].map((section, number) => new Beat(section, number));
const end = at("end");
let now = 0; // the beat in view; beats.length is the end

/** One beat: where it is in asking, acting and revealing. */
function Beat(section, number) {
  const reveal = section.querySelector(".reveal");
  const before = section.querySelector(".before");
  const after = section.querySelector(".after");
  const own = this;
  Object.assign(this, { section, number, guess: null, done: !section.dataset.waits });
  const right = section.dataset.right === undefined ? null : Number(section.dataset.right);
  const texts = [...section.querySelectorAll(".options li")].map((item) => item.textContent);
  const options = texts.map((text, place) =>
    make("button", { type: "button", class: "option", "aria-pressed": "false", onclick: () => own.predict(place) },
      make("kbd", { "aria-hidden": "true" }, String(place + 1)), make("span", {}, text), make("span", { class: "sign" })));
  section.querySelectorAll(".options li").forEach((item, place) => item.replaceChildren(options[place]));
  this.asks = options.length > 0;
  this.title = section.querySelector("h2");

  if (after) {
    before.after(after); // in the place of what it was before, not in the fold
    after.hidden = true;
  }
  const doing = make("button", { type: "button", class: "main", onclick: () => own.show() });
  doing.textContent = reveal && reveal.querySelector(".act") ? reveal.querySelector(".act").textContent.replace(/\.$/, "") : "See";
  const locked = make("p", { class: "locked" });
  const act = make("div", { class: "do" }, locked, doing);
  act.hidden = true;
  if (reveal) reveal.before(act);
  const verdict = make("p", { class: "verdict" });
  if (reveal) reveal.querySelector("summary").after(verdict);
  const acts = Boolean(reveal && reveal.querySelector(".act"));

  /** Lock a prediction. */
  this.predict = (place) => {
    if (own.done || own.guess !== null || place < 0 || place >= options.length) return;
    own.guess = place;
    options.forEach((button, other) => {
      button.setAttribute("aria-disabled", "true");
      button.setAttribute("aria-pressed", String(other === place));
    });
    if (acts) {
      locked.textContent = `You say: “${texts[place]}”. Now have it done.`;
      own.ready();
    } else {
      own.show();
    }
  };

  /** What is to be pressed next, where something is. */
  this.primary = () => (own.done ? null : act.hidden ? null : doing);

  this.ready = () => {
    act.hidden = false;
    doing.focus();
    told(locked.textContent);
  };

  this.right = () => own.guess !== null && own.guess === right;

  this.show = () => {
    if (own.done || (own.asks && own.guess === null)) return;
    own.done = true;
    act.hidden = true;
    reveal.open = true;
    if (after) [before.hidden, after.hidden] = [true, false];
    verdict.textContent = own.asks ? words() : "";
    verdict.className = own.asks ? (own.right() ? "verdict right" : "verdict wrong") : "verdict";
    options.forEach((button, place) => {
      button.querySelector(".sign").textContent = place === right ? "✓" : place === own.guess ? "✗" : "";
      button.classList.toggle("right", place === right);
      button.classList.toggle("wrong", place === own.guess && place !== right);
    });
    const why = [...reveal.querySelectorAll(".why p")].map((part) => part.textContent).join(" ");
    told(`${verdict.textContent} ${why}`.trim());
    showNav();
    toEnds();
    at("next").focus({ preventScroll: true });
    reveal.scrollIntoView({ block: "nearest" });
  };

  function words() {
    if (own.right()) return `✓ Right: “${texts[right]}”.`;
    return right === null ? "✗ It is none of these." : `✗ Not “${texts[own.guess]}”: it is “${texts[right]}”.`;
  }

  this.reset = () => {
    Object.assign(own, { guess: null, done: !section.dataset.waits });
    act.hidden = own.done || own.asks;
    locked.textContent = "";
    verdict.textContent = "";
    if (reveal) reveal.open = false;
    if (after) [before.hidden, after.hidden] = [false, true];
    for (const button of options) {
      button.classList.remove("right", "wrong");
      button.removeAttribute("aria-disabled");
      button.setAttribute("aria-pressed", "false");
      button.querySelector(".sign").textContent = "";
    }
  };

  this.reset();
}

/** Long texts are shown where they end. */
function toEnds() {
  for (const text of document.querySelectorAll(".text")) text.scrollTop = text.scrollHeight;
}

/** Have it read out. */
function told(text) {
  at("told").textContent = text;
}

// ---- going from beat to beat ----------------------------------------------------------------

function go(to, quietly) {
  now = Math.max(0, Math.min(beats.length, to));
  beats.forEach((beat) => { beat.section.hidden = beat.number !== now; });
  end.hidden = now < beats.length;
  if (now === beats.length) showScore();
  told("");
  showNav();
  toEnds();
  if (!quietly) {
    (now < beats.length ? beats[now].title : at("title-end")).focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  try {
    history.replaceState(null, "", now < beats.length ? `#card-${now + 1}` : "#end");
  } catch {
    // some browsers refuse it for files; the page works without
  }
}

function showNav() {
  const over = now === beats.length;
  at("back").disabled = now === 0;
  at("where").textContent = over ? "the end" : `${now + 1}/${beats.length}`;
  at("next").textContent = over ? "Again from the start" : now === beats.length - 1 ? "To the end →" : beats[now].done ? "Next →" : "Skip →";
  at("next").classList.toggle("main", over || beats[now].done);
}

function next() {
  if (now < beats.length) {
    go(now + 1);
    return;
  }
  for (const beat of beats) beat.reset();
  go(0);
}

function showScore() {
  const asked = beats.filter((beat) => beat.asks);
  const right = asked.filter((beat) => beat.right()).length;
  const lines = asked.map((beat) => {
    const said = beat.guess === null ? "not predicted" : beat.right() ? "✓ right" : "✗ not right";
    const name = beat.title.textContent;
    return make("li", {}, make("button", { type: "button", class: "link", onclick: () => go(beat.number) }, name), ` ${said}`);
  });
  at("score").replaceChildren(...(asked.length
    ? [make("p", { class: "number" }, `${right} of ${asked.length} prediction${asked.length === 1 ? "" : "s"} ${right === 1 || asked.length === 1 ? "was" : "were"} right.`), make("ul", {}, ...lines)]
    : []));
}

at("nav").append(
  make("button", { type: "button", id: "back", onclick: () => go(now - 1) }, "← Back"),
  make("span", { id: "where" }),
  make("button", { type: "button", id: "next", onclick: next }, "Next →"),
  make("p", { class: "hint" }, make("kbd", {}, "1"), " to ", make("kbd", {}, "4"), " predict, ", make("kbd", {}, "⏎"),
    " goes on, ", make("kbd", {}, "←"), " ", make("kbd", {}, "→"), " between the cards."));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const beat = beats[now];
  if (/^[1-9]$/.test(event.key) && beat) beat.predict(Number(event.key) - 1);
  else if (event.key === "ArrowRight" && now < beats.length) go(now + 1);
  else if (event.key === "ArrowLeft") go(now - 1);
  else if (event.key === "Enter" && !event.target.closest("button")) {
    if (!beat || beat.done) next();
    else if (beat.primary()) beat.primary().click();
  } else return;
  event.preventDefault();
});

document.documentElement.classList.add("live");
const named = /^#card-(\d+)$/.exec(location.hash);
go(named ? Number(named[1]) - 1 : 0, true);
