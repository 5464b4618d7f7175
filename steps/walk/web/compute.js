/* The computation of one number, written out with its terms. A formula was held against every
   recorded number in Python; here it is worked out once more from the exact numbers, with as many
   digits as it takes for the shown ones to give the shown result. */
import { indexOf, read, tensors } from "./data.js";
import { sourceOf } from "./follow.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {import("./data.js").Formula} Formula */
/** @typedef {{t: Tensor, e: number}} Ref */
/** @typedef {(string | Ref)[]} Parts */
/** @typedef {{parts: Parts, work: (values: number[]) => number, from: Ref[]}} Sum */

const SUMMED = -1, ONLY = -2, MOST = 32;  // terms that are written out

/** The element that an element was before it was moved; null for a computed one. @param {Ref} ref @returns {Ref | null} */
export function before({t, e}) {
  for (const link of t.links) {
    const s = link.same ? sourceOf(link, t, e) : -1;
    if (s >= 0) return {t: tensors[link.i], e: s};
  }
  return null;
}
/** A number where it can be seen: in the nearest named tensor that it lay in before. @param {Ref} ref @returns {Ref} */
export function seen(ref) {
  let found = ref;
  while (!found.t.drawn || found.t.raw.link) {
    const earlier = before(found);
    if (!earlier) return ref.t.drawn ? ref : found;
    found = earlier;
  }
  return found;
}

/** The element of a source that goes with an index of the result. @param {Formula} how @param {number} which
 * @param {number[]} at @param {number} k the place on the summed axis @returns {Ref} */
function term(how, which, at, k = 0) {
  const t = tensors[how.of[which]], map = how.map?.[which] || at.map((_, axis) => axis);
  const e = map.reduce((sum, axis, own) => sum + t.dims[own] * (axis === SUMMED ? k : axis === ONLY ? 0 : at[axis]), 0);
  return seen({t, e});
}

/** How many terms there are. @param {Formula} how */
function length(how) {
  const source = tensors[how.of[0]], axis = how.axis === undefined ? how.map?.[0].indexOf(SUMMED) : how.axis;
  return axis === undefined || axis < 0 ? 1 : source.shape[axis];
}

/** @param {Formula} how @param {number[]} at @returns {Sum} */
function dot(how, at) {
  const pairs = Array.from({length: length(how)}, (_, k) => [term(how, 0, at, k), term(how, 1, at, k)]);
  return {parts: pairs.flatMap(([a, b], k) => k ? [" + ", a, " × ", b] : [a, " × ", b]), from: pairs.flat(),
    work: values => pairs.reduce((sum, _, k) => sum + values[2 * k] * values[2 * k + 1], 0)};
}
/** @param {Formula} how @param {number[]} at @returns {Sum} */
function summed(how, at) {
  const n = length(how), terms = Array.from({length: n}, (_, k) => term(how, 0, at, k)), mean = how.op === "mean";
  const parts = terms.flatMap((one, k) => k ? [" + ", one] : [one]);
  return {parts: mean ? ["(", ...parts, ") / " + n] : parts, from: terms,
    work: values => values.reduce((sum, value) => sum + value, 0) / (mean ? n : 1)};
}
/** @param {Formula} how @param {number[]} at @returns {Sum} */
function softmax(how, at) {
  const axis = how.axis || 0, terms = Array.from({length: length(how)}, (_, k) =>
    term({...how, map: undefined}, 0, at.map((i, own) => own === axis ? k : i)));
  const below = terms.flatMap((one, k) => k ? [" + e^", one] : ["e^", one]);
  return {parts: ["e^", terms[at[axis]], " / (", ...below, ")"], from: terms, work: ([own, ...all]) => {
    const top = Math.max(...all);
    return Math.exp(own - top) / all.reduce((sum, value) => sum + Math.exp(value - top), 0);
  }};
}
/** A plain number; a root by its sign. @param {number} by */
export const factor = by => !Number.isInteger(by) && Math.abs(by * by - Math.round(by * by)) < 1e-9 && by > 0 ? "√" + Math.round(by * by) : String(by);
/** @type {Record<string, [string, (a: number, b: number) => number]>} */
const OF_TWO = {add: [" + ", (a, b) => a + b], sub: [" - ", (a, b) => a - b], mul: [" × ", (a, b) => a * b], div: [" / ", (a, b) => a / b]};

/** @param {Formula} how @param {number[]} at @param {number} e @param {Tensor} t @returns {Sum | null} */
function single(how, at, e, t) {
  const first = term(how, 0, at), by = Number(how.by);
  if (how.op === "exp") return {parts: ["e^", first], from: [first], work: ([a]) => Math.exp(a)};
  if (how.op === "drop") {
    if (t.value(e) === 0 && first.t.value(first.e) !== 0) return {parts: ["0, dropped: it was ", first], from: [first], work: () => 0};
    return {parts: [first, " / (1 - " + by + ")"], from: [first], work: ([a]) => a / (1 - by)};
  }
  if (how.op === "fill") {
    const mask = term(how, 1, at), blocked = Boolean(mask.t.value(mask.e));
    return blocked ? {parts: [String(how.by) + ", blocked: the mask is ", mask, " here, and ", first, " is not used"], from: [mask, first], work: () => Number(String(how.by).replace("inf", "Infinity"))}
      : {parts: [first, ", not blocked: the mask is ", mask, " here"], from: [first, mask], work: ([a]) => a};
  }
  const [sign, work] = OF_TWO[how.op] || [];
  if (!work) return null;
  if (how.of.length === 1) return {parts: [first, sign + factor(by)], from: [first], work: ([a]) => work(a, by)};
  const second = term(how, 1, at);
  return {parts: [first, sign, second], from: [first, second], work: ([a, b]) => work(a, b)};
}

/** The computation of an element, as text and references; null where none is known.
 * @param {Tensor} t @param {number} e @returns {{parts: Parts, digits: number, from: Ref[]} | null} */
export function computation(t, e) {
  const how = t.formula;
  if (!how || length(how) > MOST) return null;
  const at = indexOf(e, t.shape);
  const sum = how.op === "dot" ? dot(how, at) : how.op === "softmax" ? softmax(how, at)
    : how.op === "sum" || how.op === "mean" ? summed(how, at) : single(how, at, e, t);
  if (!sum) return null;
  const refs = /** @type {Ref[]} */ (sum.parts.filter(part => typeof part !== "string"));
  const exact = refs.map(ref => numeric(ref.t.value(ref.e))), whole = t.value(e);
  if (exact.some(value => value === null)) return null;
  const values = /** @type {number[]} */ (exact), goal = read(whole, t);
  if (!near(sum.work(values), numeric(whole))) return null;
  let digits = 4;
  while (digits < 9 && read(told(sum.work(values.map(value => Number(value.toFixed(digits))))), t) !== goal) digits++;
  return {parts: sum.parts, digits, from: sum.from};
}

/** @param {import("./data.js").Value} value @returns {number | null} */
function numeric(value) {
  if (value === undefined) return null;
  return typeof value === "number" ? value : Number(value.replace("inf", "Infinity"));
}
/** @param {number} value */
const told = value => Number.isFinite(value) ? value : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
/** @param {number} a @param {number | null} b */
const near = (a, b) => b !== null && (a === b || Number.isNaN(a) && Number.isNaN(b) || Math.abs(a - b) <= 1e-5 + 1e-4 * Math.abs(b));

/** The sources of a computation at a glance: "head_queries[0, 1, 2, :]". @param {Ref[]} refs @param {(t: Tensor, set: Uint8Array) => string} text */
export function sources(refs, text) {
  /** @type {Map<Tensor, Uint8Array>} */
  const sets = new Map();
  for (const {t, e} of refs) {
    const set = sets.get(t) || new Uint8Array(t.size);
    set[e] = 1;
    sets.set(t, set);
  }
  return [...sets].map(([t, set]) => ({t, text: text(t, set)}));
}
