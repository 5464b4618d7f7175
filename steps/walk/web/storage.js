/* The storage that a chosen number lies in: its numbers in one row, and the strides that read it. */
import { byId, indexOf, make, on, read, shown } from "./data.js";
import { before } from "./compute.js";
import { chosen, kindOf } from "./light.js";
import { address, owner } from "./names.js";
/** @typedef {import("./data.js").Tensor} Tensor */

const MOST = 32;  // numbers of a storage that are drawn at once
const VIEWS = ["rearranged", "unchanged"];

/** The place of an element in its storage. @param {Tensor} t @param {number} e */
export const placeOf = (t, e) => indexOf(e, t.shape).reduce((sum, i, k) => sum + i * t.raw.stride[k], t.raw.offset);

/** The tensor whose storage it is, as far as it is in the record. @param {Tensor} t @param {number} e */
export function holder(t, e) {
  let ref = {t, e};
  while (VIEWS.includes(ref.t.raw.origin)) {
    const earlier = before(ref);
    if (!earlier) break;
    ref = earlier;
  }
  return ref;
}

/** Show the storage of some elements of a tensor, or of the chosen number. @param {Tensor | null} t @param {number[]} elements */
export function showStorage(t = chosen.t, elements = [chosen.e]) {
  const box = byId("storage");
  if (!t || !box) return;
  const root = holder(t, elements[0]).t, at = elements.map(e => placeOf(t, e)), row = rowOf(t, elements[0]);
  const slots = /** @type {[number, number][]} */ ([]);
  for (let e = 0; e < root.size; e++) slots.push([placeOf(root, e), e]);
  slots.sort((a, b) => a[0] - b[0]);
  if (t.raw.rows || root.raw.rows || !t.raw.stride.length) { box.hidden = true; return; }
  box.hidden = false;
  const middle = slots.findIndex(([place]) => place === at[0]);
  const from = slots.length <= MOST ? 0 : Math.max(0, Math.min(slots.length - MOST, middle - MOST / 2));
  const cut = slots.slice(from, from + MOST);
  box.replaceChildren(
    make("p", {class: "stored"}, make("b", {}, "storage of " + root.label), ": " + (root.size === 1 ? "one number" : root.size + " numbers in a row") + ". ", reading(t, elements)),
    make("ol", {class: "slots", "aria-label": "storage of " + root.label}, from ? make("li", {class: "more"}, "…") : "",
      ...cut.map(([place, e]) => slot(root, e, place, at, row)), from + MOST < slots.length ? make("li", {class: "more"}, "…") : ""));
}

/** The places of the row that an element stands in. @param {Tensor} t @param {number} e */
function rowOf(t, e) {
  const width = t.shape[t.shape.length - 1] || 1, first = e - e % width;
  return Array.from({length: width}, (_, k) => placeOf(t, first + k));
}

/** @param {Tensor} root @param {number} e @param {number} place @param {number[]} at @param {number[]} row */
function slot(root, e, place, at, row) {
  const {head} = owner(root, e), kind = at.includes(place) ? " here" : row.includes(place) ? " reads" : kindOf(root, e) === 0 ? " here" : "";
  return make("li", {class: (head >= 0 ? "hd hd" + head % 8 : "") + kind}, make("span", {}, read(root.value(e), root, 2)), make("small", {}, place));
}

/** How the strides lead there. @param {Tensor} t @param {number[]} elements */
function reading(t, elements) {
  const index = indexOf(elements[0], t.shape), terms = index.map((i, k) => i + " × " + t.raw.stride[k]);
  const start = t.raw.offset ? t.raw.offset + " + " : "", first = placeOf(t, elements[0]);
  return make("span", {}, t.label + " has strides " + shown(t.raw.stride) + ", so " + address(t, elements[0]).slice(t.label.length) + " is place ",
    make("span", {class: "nowrap"}, start + terms.join(" + ") + " = " + first), ".");
}
on("light", () => showStorage());
