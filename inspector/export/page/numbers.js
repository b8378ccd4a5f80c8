// Numbers as the terminal's screen writes them, and elements whose texts are texts.

/** A whole number with commas between its thousands. */
function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A probability, given in millionths, in percent; never rounded to certainty or to nothing. */
function percent(millionths) {
  if (millionths === null || millionths === undefined) return "–";
  const share = millionths / 1e6;
  if (share >= 1) return "100 %";
  if (share <= 0) return "0 %";
  if (share < 0.0001) return "<0.01 %";
  return share < 0.99995 ? (share * 100).toFixed(2) + " %" : ">99.99 %";
}

/** A place on the line from 0 to 1, cut off rather than rounded: a draw never seems to be where its share ends. */
function cut(value) {
  return (Math.floor(value * 1000 + 1e-6) / 1000).toFixed(3);
}

function bits(value) {
  return value === null ? "–" : Math.max(0, value).toFixed(2);
}

function milliseconds(value) {
  if (value >= 999.5) return (value / 1000).toFixed(2) + " s";
  return (value < 0.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0)) + " ms";
}

/** Bytes in the largest fitting unit, about three digits of them. */
function size(value) {
  if (value < 1024) return value + " B";
  let amount = value / 1024, unit = "KiB";
  for (const larger of ["MiB", "GiB", "TiB"]) {
    if (amount < 1000) break;
    amount /= 1024;
    unit = larger;
  }
  return String(Number(amount.toFixed(amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2))) + " " + unit;
}

/** An element. Children that are strings become text, whatever is in them. */
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}
