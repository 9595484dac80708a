// Elements, numbers as people read them, and the tip that follows the pointer.

/** An element with a class and what is in it: texts, which are never markup, and elements. */
function make(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside.filter((part) => part !== null && part !== undefined));
  return element;
}

/** The same of SVG, with attributes. */
function draw(tag, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

function scaled(value, steps) {
  const [scale, unit] = steps.find(([scale]) => value >= scale) || steps[steps.length - 1];
  const number = value / scale;
  const digits = scale === 1 || number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return number.toFixed(digits) + (unit ? " " + unit : "");
}

const time = (ns) => scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]]);
const size = (bytes) => scaled(bytes, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1, "B"]]);
const count = (n) => (n < 100000 ? String(n) : scaled(n, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]));
const plural = (n, what) => count(n) + " " + what + (n === 1 ? "" : "s");

/** A text whose numbers stay with their units. */
const unbroken = (text) => text.replace(/(\d) (?=(%|[num]?s|[KMGT]?i?B)( |[.,;:)]|$))/g, "$1\u00a0");

function percent(part, whole) {
  if (!(whole > 0)) return "";
  const value = (100 * part) / whole;
  return value.toFixed(value < 10 ? 1 : 0) + " %";
}

/** A colour of the style. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Those of the groups of routines. */
const groups = {
  "start and end": "--g-life",
  "put and get": "--g-rma",
  "atomics": "--g-atomic",
  "quiet and fence": "--g-order",
  "waits": "--g-wait",
  "collectives": "--g-collective",
  "memory and teams": "--g-memory",
  "connections": "--g-network",
};

/** Colours from nothing (0) to much (1), which can be told apart in light and dark. */
function heat(share) {
  const stops = [[68, 57, 134], [42, 111, 150], [34, 157, 138], [120, 198, 92], [250, 220, 60]];
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const mix = stops[low].map((from, i) => Math.round(from + (stops[low + 1][i] - from) * (at - low)));
  return "rgb(" + mix.join(",") + ")";
}

/** Shows a text beside the pointer while it is over an element: `tell(event)` gives it, or nothing. */
function tip(element, tell) {
  const box = document.getElementById("tip");
  const hide = () => { box.hidden = true; };
  element.addEventListener("pointermove", (event) => {
    const text = tell(event);
    if (!text) return hide();
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 4);
    const below = event.clientY + 16;
    const top = below + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 10 : below;
    box.style.left = Math.max(4, left) + "px";
    box.style.top = Math.max(4, top) + "px";
  });
  element.addEventListener("pointerleave", hide);
}

/** Buttons of which one is pressed; `chosen(name)` is called at once for `first`, and for what is pressed. */
function choice(names, chosen, first = names[0]) {
  const buttons = names.map((name) => make("button", "", name));
  const press = (at) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === at));
    chosen(names[at]);
  };
  buttons.forEach((button, at) => button.addEventListener("click", () => press(at)));
  press(names.indexOf(first));
  return make("div", "choice", ...buttons);
}

/** What is drawn again when the scheme of colours or the width of the window changes. */
const redraws = [];
const redraw = () => redraws.forEach((drawing) => drawing());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);

/** A table: columns are [title, of text, cell of a row]. */
function table(columns, rows) {
  const cell = (tag, text, content) => make(tag, text ? "text" : "", content);
  const head = make("tr", "", ...columns.map(([title, text]) => cell("th", text, title)));
  const body = rows.map((row) => make("tr", "", ...columns.map(([, text, of]) => cell("td", text, of(row)))));
  return make("div", "wide", make("table", "", make("thead", "", head), make("tbody", "", ...body)));
}
