/* Predicting: shapes and numbers are hidden until they are guessed, step by step, with a score for
   each. What was guessed is kept for as long as the tab is open, through a reload. */
import { byId, data, make, tensors } from "./data.js";
import { anchor } from "./address.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {"right" | "late" | "shown"} Known */

const asked = tensors.filter(t => t.raw.ask), STORE = "shapes of " + data.text + JSON.stringify(data.sizes);
let predicting = false;
/** @type {Record<string, Known>} */
let known = {};
try { ({predicting = false, known = {}} = JSON.parse(sessionStorage.getItem(STORE) || "{}")); } catch { /* nothing is kept */ }
const keep = () => { try { sessionStorage.setItem(STORE, JSON.stringify({predicting, known})); } catch { /* nor now */ } };

/** A shape that answers no question: an example gives nothing away. */
function example() {
  const taken = new Set(asked.flatMap(t => [t.raw.shape.join(), t.raw.axes.join()]));
  const numbers = [[7, 5], [5, 7, 9], [11, 13]].find(shape => !taken.has(shape.join())) || [7];
  const letters = [["H", "B"], ["D", "B", "H"], ["D", "T"]].find(axes => !taken.has(axes.join()) && !taken.has(axes.map(axis => data.sizes[axis]).join())) || ["D"];
  return numbers.join(", ") + " or " + letters.join(" ");
}
const EXAMPLE = example();

/** @param {string} text @returns {string[] | null} */
function parse(text) {
  const bare = text.trim().replace(/^torch\.Size/i, "").replace(/^[([\s]+|[)\]\s]+$/g, "");
  if (!bare) return /[()[\]]/.test(text) ? [] : null;
  return bare.replace(/\s*\*\s*/g, "*").split(/[\s,]+/).filter(Boolean);
}
/** @param {string} word */
function sizeOf(word) {
  let size = 1;
  for (const part of word.split("*")) {
    const value = /^\d+$/.test(part) ? Number(part) : data.sizes[part];
    if (value === undefined) return null;
    size *= value;
  }
  return size;
}

/** Whether a guess is right, and what to say. @param {Tensor} t @param {string} text @returns {[boolean, string]} */
function judge(t, text) {
  const words = parse(text), ask = t.raw.ask;
  if (words === null || !ask) return [false, "Write a shape, such as " + EXAMPLE + "."];
  const shape = t.raw.shape, sizes = words.map((word, k) => word === t.raw.axes[k] || word === t.letters[k] ? shape[k] : sizeOf(word));
  const odd = sizes.indexOf(null);
  if (odd >= 0) return [false, "“" + words[odd] + "” is no size and no axis; numbers and " + Object.keys(data.sizes).filter(name => /^[BTHD]$|d_in/.test(name)).join(", ") + " are understood."];
  if (sizes.length !== shape.length) return [false, "The number of axes differs: you have " + sizes.length + ". " + data.texts[ask[1]]];
  const wrong = sizes.findIndex((size, k) => size !== shape[k]);
  if (wrong < 0) return [true, "Right."];
  return [false, "Axis " + wrong + " (counted from 0) differs: you have " + sizes[wrong] + ". " + data.texts[ask[2][wrong]]];
}

/** Show or hide what a guess gives away. @param {HTMLElement} box of one tensor */
function reveal(box) {
  const form = /** @type {HTMLElement | null} */ (box.querySelector(".guess")), shown = !predicting || Boolean(known[box.id]);
  for (const part of box.querySelectorAll(".reveal")) /** @type {HTMLElement} */ (part).hidden = !shown;
  if (form) form.hidden = !predicting;
  for (const part of form?.querySelectorAll("input, button, label") || []) /** @type {HTMLElement} */ (part).hidden = Boolean(known[box.id]);
}

/** The question for a tensor's shape. @param {Tensor} t @param {HTMLElement} box */
export function question(t, box) {
  const id = "guess-" + anchor(t), said = make("p", {class: "said", "aria-live": "polite"});
  const input = make("input", {id, placeholder: EXAMPLE, autocomplete: "off", spellcheck: "false", autocapitalize: "off"});
  let tries = 0;
  const done = (/** @type {Known} */ how) => {
    known[anchor(t)] = how;
    keep();
    reveal(box);
    score();
    const next = [...document.querySelectorAll("#step" + t.raw.step + " .guess input")].find(one => !(/** @type {HTMLElement} */ (one).hidden));
    if (next) /** @type {HTMLElement} */ (next).focus({preventScroll: true});
  };
  return make("form", {class: "guess", hidden: true, onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    tries++;
    const [right, text] = judge(t, input.value);
    said.textContent = text;
    if (right) done(tries === 1 ? "right" : "late"); else input.select();
  }}, make("label", {for: id}, "Which shape?", make("span", {class: "away"}, " of " + t.label)), input,
  make("button", {type: "submit"}, "Check"),
  make("button", {type: "button", onclick: () => { tries++; said.textContent = t.raw.ask ? data.texts[t.raw.ask[0]] : ""; }}, "Hint"),
  make("button", {type: "button", onclick: () => { said.textContent = "Shown."; done("shown"); }}, "Show it"), said);
}

/** The score of every step, beside its name, and of all. */
function score() {
  for (const step of data.steps) {
    const part = byId("score" + step.number), mine = asked.filter(t => t.raw.step === step.number);
    const done = mine.filter(t => known[anchor(t)]), right = mine.filter(t => known[anchor(t)] === "right");
    if (part) part.textContent = predicting && mine.length ? right.length + " of " + mine.length + " right at once, " + (mine.length - done.length) + " to go" : "";
  }
  const right = asked.filter(t => known[anchor(t)] === "right").length, all = asked.filter(t => known[anchor(t)]).length;
  byId("score").textContent = !predicting ? "" : !all ? asked.length + " shapes to guess; open a step" : right + " of " + all + " right at once; " + (asked.length - all) + " to go";
}

/** Show the page as the mode asks for: all of it, or what is drawn inside one part. @param {ParentNode} part */
export function showMode(part = document) {
  for (const one of part.querySelectorAll(".reveal")) if (!one.closest(".tensor")) /** @type {HTMLElement} */ (one).hidden = predicting;
  for (const box of part.querySelectorAll(".tensor")) reveal(/** @type {HTMLElement} */ (box));
  byId("predict").setAttribute("aria-pressed", String(predicting));
  byId("again").hidden = !predicting;
  score();
}

/** The switch, the score, and a way to begin anew. */
export function switches() {
  const flip = () => { predicting = !predicting; keep(); showMode(); };
  const anew = () => { known = {}; keep(); showMode(); };
  return [make("span", {id: "score", "aria-live": "polite"}), make("button", {id: "again", type: "button", hidden: true, onclick: anew}, "Start anew"),
    make("button", {id: "predict", type: "button", "aria-pressed": "false", onclick: flip}, "Predict the shapes")];
}
