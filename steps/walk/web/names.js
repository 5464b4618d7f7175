/* What an element is called: its index, where it stands, and whose number it is. */
import { indexOf, read, tensors } from "./data.js";
import { sourceOf } from "./follow.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {{head: number, token: number}} Whose */

/** Heads lie side by side on this axis. @param {Tensor} t @param {number} k */
export function sideBySide(t, k) {
  const D = t.step.head_dim;
  return t.letters[k] === "H*D" && D > 0 && t.raw.shape[k] % D === 0;
}

/** Where an element stands by its own axes; -1 where there is no such axis. @param {Tensor} t @param {number} e @returns {Whose} */
export function standsIn(t, e) {
  const at = indexOf(e, t.shape);
  let head = -1, token = -1;
  t.letters.forEach((axis, k) => {
    if (axis === "H" && head < 0) head = at[k];
    if (head < 0 && sideBySide(t, k)) head = Math.floor(at[k] / t.step.head_dim);
    if ((axis === "T" || axis === "T?") && token < 0) token = at[k];
  });
  return {head, token};
}

/** Whose number it is: traced to where it was computed. @param {Tensor} t @param {number} e @returns {Whose} */
export function owner(t, e) {
  for (const link of t.links) {
    if (!link.same) continue;
    const s = sourceOf(link, t, e);
    if (s >= 0) { const found = owner(tensors[link.i], s); if (found.head >= 0) return found; }
  }
  const found = standsIn(t, e);
  return t.letters.includes("T?") ? {head: found.head, token: -1} : found;
}

/** The tokens of an axis; repeated ones with their positions. @param {Tensor} t @param {number} size */
function tokensOf(t, size) {
  const tokens = t.step.tokens;
  return tokens.length === size ? tokens.map((one, i) => tokens.indexOf(one) === tokens.lastIndexOf(one) ? one : one + " at " + i) : null;
}
/** @param {Tensor} t @param {number} i */
export const tokenName = (t, i) => t.step.tokens[i] === undefined ? "token " + i : tokensOf(t, t.step.tokens.length)?.[i] || "token " + i;

/** What an index on an axis is called; "" where it has no name. @param {Tensor} t @param {number} k @param {number} i */
export function place(t, k, i) {
  const axis = t.letters[k];
  if (t.raw.rows && k === 0) return "id " + t.raw.rows[i];
  if (axis === "T") return tokensOf(t, t.raw.shape[k])?.[i] || "token " + i;
  if (axis === "H") return "head " + (i + 1);
  if (sideBySide(t, k)) return "head " + (Math.floor(i / t.step.head_dim) + 1) + ", index " + i % t.step.head_dim;
  return "";
}

/** @param {Tensor} t @param {number[]} at */
const indices = (t, at) => at.map((i, k) => t.raw.rows && k === 0 ? t.raw.rows[i] : i);

/** name[index] @param {Tensor} t @param {number} e */
export function address(t, e) {
  const at = indices(t, indexOf(e, t.shape));
  return t.label + (at.length ? "[" + at.join(", ") + "]" : "");
}

/** In words, owner and place: "bank, head 2". @param {Tensor} t @param {number} e */
export function inWords(t, e) {
  const at = indexOf(e, t.shape), words = [];
  if (t.raw.holds && t.letters.length > 1) {
    const [query, key] = at.slice(-2), axis = t.letters.length - 2;
    const head = t.letters.indexOf("H");
    if (t.letters[axis] === "T") {
      words.push(place(t, axis, query) + (query === key ? " with itself" : " with " + place(t, axis + 1, key)));
      return [...words, ...head >= 0 ? [place(t, head, at[head])] : []].join(", ");
    }
  }
  const whose = owner(t, e), here = standsIn(t, e);
  if (whose.head >= 0 && whose.token >= 0 && (whose.head !== here.head || t.letters.includes("T?") || t.letters.includes("H*D?"))) {
    const mine = tokenName(t, whose.token) + ", head " + (whose.head + 1);
    const where = [here.head >= 0 ? "head " + (here.head + 1) : "", here.token >= 0 ? "row " + here.token : ""].filter(Boolean).join(", ");
    return "belongs to " + mine + (where ? ", and stands in " + where : "");
  }
  const told = at.map((i, k) => t.letters[k].endsWith("?") ? "row " + i : t.raw.shape[k] > 1 || t.letters[k] === "H" ? place(t, k, i) : "");
  const head = t.letters.indexOf("H"), last = head >= 0 ? told.splice(head, 1) : [];  // the token first
  return [...told, ...last].filter(Boolean).join(", ");
}

/** The address, number and words of an element. @param {Tensor} t @param {number} e */
export const named = (t, e) => address(t, e) + " = " + read(t.value(e), t);

/** Which elements a set holds, as an index: "[0, 2, :]"; "" where it is no rectangle. @param {Tensor} t @param {Uint8Array} set */
export function indexText(t, set) {
  const hit = t.shape.map(size => new Uint8Array(size));
  let count = 0;
  for (let e = 0; e < set.length; e++) {
    if (!set[e]) continue;
    count++;
    indexOf(e, t.shape).forEach((i, k) => { hit[k][i] = 1; });
  }
  const lists = hit.map(marks => [...marks.keys()].filter(i => marks[i]));
  if (!lists.length || lists.reduce((all, list) => all * list.length, 1) !== count) return "";
  return "[" + lists.map((list, k) => {
    const size = t.shape[k], from = list[0], to = list[list.length - 1];
    if (t.raw.rows && k === 0) return list.length === 1 ? t.raw.rows[from] : list.length + " ids";
    if (list.length === size && size > 1) return ":";
    if (list.length === 1) return from;
    return to - from + 1 === list.length ? from + ":" + (to + 1) : "{" + list.join(", ") + "}";
  }).join(", ") + "]";
}

/** @param {Uint8Array} set */
export const count = set => set.reduce((sum, one) => sum + one, 0);
/** @param {Tensor} t @param {Uint8Array} set */
export const setText = (t, set) => t.label + (indexText(t, set) || " (" + count(set) + " of " + t.size + ")");
