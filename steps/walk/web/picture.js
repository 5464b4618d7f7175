/* Steps 15 to 19 as one picture: the lanes of queries, keys and values from packed to heads, what
   they are multiplied into, the merge, and the output. Python found the way by its links. */
import { data, make, on, range, shown, tensors } from "./data.js";
import { anchor } from "./address.js";
import { factor } from "./compute.js";
import { draw, fill } from "./grid.js";
import { sideBySide } from "./names.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {import("./grid.js").View} View */

/** What is drawn in the picture, by the tensor. @type {Map<number, View>} */
export const plates = new Map();
const LIMITS = /** @type {Record<string, number>} */ ({T: 5, "T?": 5, H: 3, D: 4});
const wide = matchMedia("(min-width: 118rem)");

/** A few of many: the first, the followed one and the last. @param {number[]} list @param {number} most @param {number} keep */
function few(list, most, keep) {
  if (list.length <= most) return list;
  const at = new Set([...list.slice(0, most - 2), list.includes(keep) ? keep : list[most - 2], list[list.length - 1]]);
  return [...at].sort((a, b) => a - b);
}

/** The indices that fit into the picture. @param {Tensor} t */
const fitting = t => t.window.map((list, k) => {
  const D = t.step.head_dim, letter = t.letters[k];
  if (!sideBySide(t, k)) return few(list, LIMITS[letter] || 6, letter === "T" ? data.follow : -1);
  const heads = few([...new Set(list.map(i => Math.floor(i / D)))], LIMITS.H, -1);
  const within = few([...new Set(list.map(i => i % D))], LIMITS.D, -1);
  return heads.flatMap(h => within.map(d => h * D + d));
});

/** A tensor with its name and shape, what made it, and what is played from it.
 * @param {number} id @param {string} kind @param {string | HTMLElement} how @param {string | HTMLElement} next */
function plate(id, kind, how, next = "") {
  const t = tensors[id], view = draw(t, {digits: wide.matches ? 4 : 2, short: true, window: fitting(t)});
  plates.set(id, view);
  return make("figure", {class: "plate " + kind}, make("figcaption", {}, make("a", {href: "#" + anchor(t)}, ...broken(t.label)), " ", make("span", {class: "shape"}, shown(t.raw.shape)),
    how ? make("span", {class: "how"}, how) : ""), view.box, next);
}
/** Long names may break after an underscore. @param {string} name */
const broken = name => name.split("_").flatMap((part, k) => k ? ["_", make("wbr"), part] : [part]);

/** What a tensor was made by, in a word. @param {Tensor} t */
function wordOf(t) {
  const how = t.formula;
  if (!how) return t.raw.function;
  return how.op === "div" ? "÷ " + factor(Number(how.by)) : /** @type {Record<string, string>} */ ({fill: "mask", drop: "dropout"})[how.op] || how.op;
}
/** What lies between two tensors of the picture. @param {number} from @param {number} to */
function between(from, to) {
  const words = [];
  for (let t = tensors[to]; t.id !== from;) {
    words.unshift(wordOf(t));
    const next = t.formula ? t.formula.of[0] : t.links[0]?.i;
    if (next === undefined) break;
    t = tensors[next];
  }
  return words;
}

/** A way that can be played. @param {string} word @param {number} from @param {number} to @param {(from: number, to: number) => void} play */
const playable = (word, from, to, play) => make("button", {type: "button", class: "play", title: "Watch the numbers move",
  "aria-label": word + ": watch the numbers of " + tensors[to].label + " move", onclick: () => play(from, to)}, word, make("span", {"aria-hidden": "true"}, " ▸"));

/** The picture; null where the record has no such way. @param {(from: number, to: number) => void} play @param {HTMLElement} card */
export function picture(play, card) {
  const found = data.picture;
  if (!found) return null;
  const lanes = found.lanes.map((ids, lane) => make("div", {class: "lane", role: "group", "aria-label": ["queries", "keys", "values"][lane]},
    ...ids.map((id, k) => plate(id, k ? "" : "packed", "", k + 1 < ids.length ? playable(tensors[ids[k + 1]].raw.function, id, ids[k + 1], play) : ""))));
  const [softmax, thinned] = found.weights;
  const scores = make("div", {class: "row scores"}, plate(found.scores, "", "queries @ keysᵀ"), plate(softmax, "", between(found.scores, softmax).join(", ")),
    thinned === undefined ? "" : plate(thinned, "", between(softmax, thinned).join(", ")));
  const merged = make("div", {class: "row merged"}, plate(found.contexts, "", "weights @ values"),
    make("div", {class: "stack"}, plate(found.joined, "packed", playable("merge", found.contexts, found.joined, play)), plate(found.output, "packed", "out_proj")));
  const made = make("section", {id: "picture", "aria-label": "Steps 15 to 19"}, make("div", {class: "lanes"}, ...lanes), make("div", {class: "onward"}, scores, card, merged));
  wide.addEventListener("change", () => plates.forEach(view => { view.digits = wide.matches ? 4 : 2; fill(view); }));
  on("turn", () => made.classList.toggle("turned", tensors.some(t => t.swapped)));
  return made;
}

/** Every pair of tensors in the picture whose numbers only move. @returns {[number, number][]} */
export function moves() {
  const found = data.picture;
  if (!found) return [];
  const pairs = found.lanes.flatMap(ids => range(ids.length - 1).map(k => /** @type {[number, number]} */ ([ids[k], ids[k + 1]])));
  return [...pairs, [found.contexts, found.joined]];
}
