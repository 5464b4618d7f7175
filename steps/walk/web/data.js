/* The record as Python put it into the page; what its keys mean stands in document.py,
   gather.py, provenance.py and formula.py. */

/** @typedef {{i: number, same?: 1, o?: number, s?: number[], box?: number[][], step?: number,
 *   rows?: number[], list?: number[], d?: number[], map?: Int32Array,
 *   keys?: {size: number, down: Int32Array, up: Int32Array}}} Link */
/** @typedef {{op: string, of: number[], map?: number[][], axis?: number, by?: number | string}} Formula */
/** @typedef {{name: string, link: boolean, function: string, shape: number[],
 *   stride: number[], offset: number, axes: string[], letters: string[], origin: string, holds: string,
 *   contiguous: boolean, shares_storage_with: string | null, step: number, wrong?: 1, window?: number[][],
 *   numbers?: string | (number | string)[], bool?: 1, rows?: number[], dead?: string, links?: Link[],
 *   formula?: Formula, read?: number[], ask?: [number, number, number[]], code?: string, here?: string,
 *   line?: number, stage?: string, mark?: "first" | "after"}} Raw */
/** @typedef {{code: string, here: string, depth: number, made: number[]}} Group */
/** @typedef {{name: string, says: string, why: string, groups: Group[], error: string}} Turn */
/** @typedef {string | {header: string[], rows: string[][]} | {drawing: string[]}} Note */
/** @typedef {{number: number, title: string, article: string[], says: string[], head_dim: number,
 *   tokens: string[], groups: Group[], wrong_turns: Turn[], notes: Note[], notes_about: string[], look: string,
 *   checks: {claim: string, holds: boolean, detail: string}[],
 *   repair?: {line: number, old: string, new: string}[], shown?: string[], trace?: [number | string, number[], string][]}} Step */
/** @typedef {{lanes: number[][], scores: number, weights: number[], contexts: number, joined: number,
 *   output: number}} Picture */
/** @typedef {{text: string, seed: number, torch: string, sizes: Record<string, number>, tokens: string[],
 *   follow: number, legend: (string | [string, string])[], steps: Step[], tensors: Raw[], texts: string[],
 *   turn: {call: string, swaps: Record<string, Partial<Raw>>} | null, picture: Picture | null,
 *   report?: 1}} Data */
/** @typedef {number | string | undefined} Value */

/** @type {Data} */
export const data = JSON.parse(document.getElementById("data")?.textContent || "{}");

/** @param {number[]} list */
export const product = list => list.reduce((a, b) => a * b, 1);
/** @param {number} n */
export const range = n => Array.from({length: n}, (_, i) => i);

/** The elements from one index to the next, axis by axis. @param {number[]} shape */
export function strides(shape) {
  const made = new Array(shape.length);
  for (let k = shape.length - 1, step = 1; k >= 0; k--) { made[k] = step; step *= shape[k]; }
  return made;
}

/** @param {number} flat @param {number[]} shape @returns {number[]} */
export function indexOf(flat, shape) {
  const made = new Array(shape.length);
  for (let k = shape.length - 1; k >= 0; k--) { made[k] = flat % shape[k]; flat = Math.floor(flat / shape[k]); }
  return made;
}

/** Bytes from base64. @param {string} text */
const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));

/** What is left out where it is empty. */
const EMPTY = {name: "", function: "", origin: "", holds: "", link: false, contiguous: false, offset: 0, shares_storage_with: null, stage: ""};
for (const groups of data.steps.flatMap(step => [step.groups, ...step.wrong_turns.map(turn => turn.groups)]))
  for (const [at, group] of groups.entries()) groups[at] = {...{here: "", depth: 0}, ...group};

/** A tensor of the record, as it is with the right turn or, after `take`, with the wrong one. */
export class Tensor {
  /** @type {Raw} as it is now */ raw;
  /** @type {boolean} whether the wrong turn made it */ swapped = false;
  /** @type {string[]} */ letters = [];
  /** @type {Link[]} */ links = [];
  /** @type {Formula | undefined} */ formula;
  /** @type {ArrayLike<number | string> | null} */ numbers = null;
  /** @type {Uint8Array | null | undefined} */ deadSet;

  /** @param {Raw} raw @param {number} id */
  constructor(raw, id) {
    this.id = id;
    this.right = this.raw = Object.assign({letters: raw.axes}, EMPTY, raw);
    this.step = /** @type {Step} */ (data.steps.find(step => step.number === raw.step));
    this.shape = raw.rows ? [raw.rows.length, ...raw.shape.slice(1)] : raw.shape;  // what is followed
    this.size = product(this.shape);
    this.dims = strides(this.shape);
    this.window = raw.window || this.shape.map(range);
    this.places = this.window.map(list => new Map(list.map((i, at) => [i, at])));
    this.across = strides(this.window.map(list => list.length));
    this.take(null);
  }

  /** @param {Partial<Raw> | null} swap what the wrong turn makes of it */
  take(swap) {
    this.raw = swap ? {...this.right, ...(swap.axes ? {letters: swap.axes} : {}), ...swap} : this.right;
    this.swapped = Boolean(swap);
    this.letters = this.raw.letters.length === this.shape.length ? this.raw.letters : this.raw.shape.map(String);
    this.links = this.raw.links || [];
    this.formula = this.raw.formula;
    this.numbers = null;
    this.deadSet = undefined;
  }

  get label() { return this.raw.name; }
  get bool() { return Boolean(this.raw.bool); }
  get drawn() { return this.raw.numbers !== undefined; }

  /** The number of an element; undefined where it is not on the page. @param {number} e @returns {Value} */
  value(e) {
    if (!this.drawn) return undefined;
    let at = 0;
    const index = indexOf(e, this.shape);
    for (let k = 0; k < index.length; k++) {
      const place = this.places[k].get(index[k]);
      if (place === undefined) return undefined;
      at += place * this.across[k];
    }
    if (!this.numbers) this.numbers = unpacked(this.raw.numbers || []);
    const found = this.numbers[at];
    return typeof found === "number" && !Number.isFinite(found) ? told(found) : found;
  }

  /** Which elements are 0 or -inf and carry nothing on. */
  get dead() {
    if (this.deadSet === undefined) this.deadSet = this.raw.dead ? bitsOf(bytesOf(this.raw.dead), this) : null;
    return this.deadSet;
  }
}

/** @param {string | (number | string)[]} numbers @returns {ArrayLike<number | string>} */
function unpacked(numbers) {
  return typeof numbers === "string" ? new Float32Array(bytesOf(numbers).buffer) : numbers;
}

/** @param {number} value not a finite one */
const told = value => Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";

/** A bit for each element; those of one sheet may stand for all. @param {Uint8Array} bytes @param {Tensor} t */
function bitsOf(bytes, t) {
  const made = new Uint8Array(t.size), n = t.shape.length, sheet = t.shape[n - 2] * t.shape[n - 1];
  const part = bytes.length * 8 < t.size ? sheet : t.size;
  for (let e = 0; e < t.size; e++) { const at = e % part; made[e] = bytes[at >> 3] >> (at & 7) & 1; }
  return made;
}

export const tensors = data.tensors.map((raw, id) => new Tensor(raw, id));

/** @param {number[]} shape */
export const shown = shape => "(" + shape.join(", ") + (shape.length === 1 ? "," : "") + ")";

/** A number as it is read: to some decimals, whole numbers and truth values as they are.
 * @param {Value} value @param {Tensor} t @param {number} digits */
export function read(value, t, digits = 4) {
  if (value === undefined) return "…";
  if (typeof value === "string") return value;
  if (t.bool) return value ? "True" : "False";
  if (typeof t.raw.numbers !== "string" && Number.isInteger(value)) return String(value);
  if (Math.abs(value) >= 1e5) return value.toExponential(3);
  return (Object.is(value, -0) ? 0 : value).toFixed(digits);
}

/* ---------- what happens on the page is told to those who listen ---------- */
/** @type {Record<string, (() => void)[]>} */
const listeners = {};
/** @param {string} what "light", "keep", "turn" or "draw" @param {() => void} run */
export const on = (what, run) => {
  listeners[what] ||= [];
  listeners[what].push(run);
};
/** @param {string} what */
export const emit = what => { for (const run of listeners[what] || []) run(); };

/* ---------- making elements ---------- */
/** @param {string} tag @param {Record<string, any>} props @param {...any} inside @returns {any} */
export function make(tag, props = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...inside.filter(part => part !== null && part !== undefined && part !== ""));
  return made;
}
/** @param {string} id @returns {any} */
export const byId = id => document.getElementById(id);
