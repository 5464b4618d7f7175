/* Addresses inside the page: #step15-head_queries&at=0.1.2.0&turn=wrong opens a step at a tensor,
   keeps a number and takes the wrong turn, so that one sight can be sent. */
import { byId, data, indexOf, on, tensors } from "./data.js";
import { choose, chosen, release } from "./light.js";
/** @typedef {import("./data.js").Tensor} Tensor */

/** @type {Map<number, string>} */
const anchors = new Map();
{
  /** @type {Map<string, number>} */
  const used = new Map();
  for (const t of tensors) {
    const name = "step" + t.raw.step + "-" + (t.raw.link ? "t" + t.id : t.label), times = (used.get(name) || 0) + 1;
    used.set(name, times);
    anchors.set(t.id, times > 1 ? name + "-" + times : name);
  }
}
/** The anchor of a tensor. @param {Tensor} t */
export const anchor = t => anchors.get(t.id) || "";
const byAnchor = new Map([...anchors].map(([id, name]) => [name, id]));

/** What is shown by an address, beside the chosen number. */
export const shownState = {step: 0, turned: false};
/** @type {{open: (step: number) => void, turn: (wrong: boolean) => void}} */
const acts = {open: () => {}, turn: () => {}};
/** @param {typeof acts} given how a step is opened, and a turn taken */
export const setActs = given => { Object.assign(acts, given); };

/** The address of what is shown now. */
function now() {
  const {t, e, kept} = chosen, parts = [];
  if (kept && t) parts.push(anchor(t), "at=" + indexOf(e, t.shape).join("."));
  else if (shownState.step) parts.push("step" + shownState.step);
  if (kept && shownState.step && t?.raw.step !== shownState.step) parts.push("open=" + shownState.step);
  else if (kept && shownState.step) parts.push("open");
  if (shownState.turned) parts.push("turn=wrong");
  return parts.length ? "#" + parts.map(encodeURIComponent).join("&").replace(/%3D/g, "=") : "";
}

let following = true;  // an address, as at first: it need not be written again
/** Write the address of what is shown. */
export function writeAddress() {
  if (following) return;
  const hash = now();
  if (hash !== location.hash) history.pushState(null, "", hash || location.pathname + location.search);
}
on("keep", writeAddress);

/** @param {string} text */
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** Show what the address says. @param {boolean} scroll */
export function readAddress(scroll = true) {
  following = true;
  const parts = location.hash.slice(1).split("&").map(decoded), [first, ...rest] = parts;
  const said = new Map(rest.map(part => /** @type {[string, string]} */ (part.split("="))));
  const id = byAnchor.get(first), step = /^step(\d+)/.exec(first), at = said.get("at");
  if (shownState.turned !== (said.get("turn") === "wrong") && data.turn) acts.turn(said.get("turn") === "wrong");
  if (at !== undefined && id !== undefined) keep(tensors[id], at); else release();
  const open = said.has("open") ? Number(said.get("open")) || Number(step?.[1]) : at === undefined ? Number(step?.[1]) : 0;
  if (open) acts.open(open);
  const goal = at === undefined || said.has("open") ? byId(first) : null;
  if (scroll && goal) goal.scrollIntoView();
  following = false;
}

/** @param {Tensor} t @param {string} at its index, as in 0.1.2.0 */
function keep(t, at) {
  const index = at === "" ? [] : at.split(".").map(Number);
  const fits = index.length === t.shape.length && index.every((i, k) => Number.isInteger(i) && i >= 0 && i < t.shape[k]);
  if (fits) choose(t, index.reduce((sum, i, k) => sum + i * t.dims[k], 0), true);
}
