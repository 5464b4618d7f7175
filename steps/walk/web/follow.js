/* Following a number along the measured maps. A set is a Uint8Array over the elements of a tensor.
   `same` links give one source element for each element; the others relate rectangles, and are
   followed through the axes that both ends share. */
import { indexOf, product, tensors } from "./data.js";
/** @typedef {import("./data.js").Link} Link */
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {Map<number, Uint8Array>} Sets */
/** @typedef {(id: number) => Uint8Array} Get */

/** @type {[number, Link][][]} */
const users = tensors.map(() => []);
/** After links have changed: which tensors each one goes into. */
export function findUsers() {
  for (const list of users) list.length = 0;
  for (const t of tensors) for (const link of t.links) users[link.i].push([t.id, link]);
}
findUsers();

/** The source element of one element by a `same` link, or -1. @param {Link} link @param {Tensor} t @param {number} e */
export function sourceOf(link, t, e) {
  if (link.list) return link.list[e];
  if (link.rows) {
    const width = t.shape[t.shape.length - 1], row = Math.floor(e / width);
    return link.rows[row] < 0 ? -1 : link.rows[row] + (link.step || 0) * (e - row * width);
  }
  const at = indexOf(e, t.shape), {box, s = [], o = 0} = link;
  if (box && at.some((a, k) => a < box[k][0] || a >= box[k][1])) return -1;
  return at.reduce((sum, a, k) => sum + a * s[k], o);
}

/** All of them at once, kept. @param {Link} link @param {Tensor} t */
function mapOf(link, t) {
  if (!link.map) {
    link.map = new Int32Array(t.size);
    for (let e = 0; e < t.size; e++) link.map[e] = sourceOf(link, t, e);
  }
  return link.map;
}

/** Where each element is on some axes: the sum of its indices times steps. @param {number[]} shape @param {number[]} steps */
function keyed(shape, steps) {
  const made = new Int32Array(product(shape)), at = new Array(shape.length).fill(0);
  for (let e = 0, key = 0; e < made.length; e++) {
    made[e] = key;
    for (let k = shape.length - 1; k >= 0; k--) {
      key += steps[k];
      if (++at[k] < shape[k]) break;
      key -= steps[k] * shape[k]; at[k] = 0;
    }
  }
  return made;
}

/** For both ends: where each element is on the shared axes. @param {Link} link @param {Tensor} t */
function keysOf(link, t) {
  if (!link.keys) {
    const source = tensors[link.i];
    let size = 1;
    const down = new Array(t.shape.length).fill(0), up = new Array(source.shape.length).fill(0);
    (link.d || []).forEach((axis, k) => {
      if (axis < 0) return;
      down[axis] = size; up[k] = size; size *= source.shape[k];
    });
    link.keys = {size, down: keyed(t.shape, down), up: keyed(source.shape, up)};
  }
  return link.keys;
}

/** In a product of matrices an element of one side counts only beside an element of the other
 * that carries something: a weight of exactly 0 takes no value along.
 * @param {Tensor} t @param {Link} link */
function partner(t, link) {
  if (t.raw.function !== "matmul" || t.links.length !== 2) return null;
  const left = t.links[0] === link, other = t.links[left ? 1 : 0];
  const weights = tensors[other.i], dead = weights.dead, batch = t.shape.length - 2;
  if (!dead || left || other.same || link.same || batch < 0) return null;
  if (weights.shape.length !== batch + 2 || tensors[link.i].shape.length !== batch + 2) return null;
  if (product(weights.shape.slice(0, batch)) !== product(t.shape.slice(0, batch))) return null;
  return {dead, rows: weights.shape[batch], inner: weights.shape[batch + 1], width: t.shape[batch + 1]};
}

/** @param {Tensor} t */
const deadOf = t => t.bool ? null : t.dead;

/** A pair's values from its results, or its results from its values: call for each two that belong together.
 * @param {NonNullable<ReturnType<typeof partner>>} pair @param {number} size @param {(result: number, value: number) => void} call */
function eachPair({dead, rows, inner, width}, size, call) {
  for (let e = 0; e < size; e++) {
    const row = Math.floor(e / width), column = e - row * width, sheet = Math.floor(row / rows);
    for (let k = 0; k < inner; k++) if (!dead[row * inner + k]) call(e, (sheet * inner + k) * width + column);
  }
}

/** Mark in `out` what has a key in common with a set. @param {Uint8Array} set @param {Uint8Array | null} skip of the set
 * @param {Int32Array} from its keys @param {number} size of keys @param {() => Uint8Array} out @param {Int32Array} to its keys @param {Uint8Array | null} leave of what is marked */
function meet(set, skip, from, size, out, to, leave) {
  const hit = new Uint8Array(size);
  let any = false;
  for (let e = 0; e < set.length; e++) if (set[e] && !skip?.[e]) { hit[from[e]] = 1; any = true; }
  if (!any) return;
  const made = out();
  for (let e = 0; e < made.length; e++) if (hit[to[e]] && !leave?.[e]) made[e] = 1;
}

/** @param {Tensor} t @param {Uint8Array} set @param {Link} link @param {Get} get */
function upward(t, set, link, get) {
  if (link.same) {
    const map = mapOf(link, t), out = get(link.i);
    for (let e = 0; e < set.length; e++) if (set[e] && map[e] >= 0) out[map[e]] = 1;
    return;
  }
  const mine = deadOf(t), pair = partner(t, link);
  if (pair) {
    const out = get(link.i);
    eachPair(pair, t.size, (result, value) => { if (set[result] && !mine?.[result]) out[value] = 1; });
    return;
  }
  const keys = keysOf(link, t);
  meet(set, mine, keys.down, keys.size, () => get(link.i), keys.up, deadOf(tensors[link.i]));
}

/** @param {Tensor} t @param {Link} link @param {Uint8Array} set @param {Uint8Array} out */
function downward(t, link, set, out) {
  if (link.same) {
    const map = mapOf(link, t);
    for (let e = 0; e < out.length; e++) if (map[e] >= 0 && set[map[e]]) out[e] = 1;
    return;
  }
  const pair = partner(t, link);
  if (pair) {
    eachPair(pair, t.size, (result, value) => { if (set[value]) out[result] = 1; });
    return;
  }
  const keys = keysOf(link, t);
  meet(set, deadOf(tensors[link.i]), keys.up, keys.size, () => out, keys.down, deadOf(t));
}

/** @returns {{sets: Sets, get: Get}} */
function collector() {
  const sets = new Map();
  const get = (/** @type {number} */ id) => {
    let set = sets.get(id);
    if (!set) { set = new Uint8Array(tensors[id].size); sets.set(id, set); }
    return set;
  };
  return {sets, get};
}
/** @param {Uint8Array} set */
export const filled = set => set.includes(1);

/** Follow sets towards the sources through the links that `take` accepts. @param {Sets} start @param {(link: Link) => boolean} take */
function allUp(start, take) {
  const {sets, get} = collector();
  for (const [id, set] of start) get(id).set(set);
  for (let id = Math.max(...sets.keys()); id >= 0; id--) {
    const set = sets.get(id);
    if (!set || !filled(set)) continue;
    for (const link of tensors[id].links) if (take(link)) upward(tensors[id], set, link, get);
  }
  return sets;
}

/** ... and towards the results. @param {Sets} start @param {(link: Link) => boolean} take */
function allDown(start, take) {
  const {sets, get} = collector();
  for (const [id, set] of start) get(id).set(set);
  for (let id = Math.min(...sets.keys()); id < tensors.length; id++) {
    for (const link of tensors[id].links) {
      const set = sets.get(link.i);
      if (set && take(link)) downward(tensors[id], link, set, get(id));
    }
    const made = sets.get(id);
    if (made && !filled(made)) sets.delete(id);
  }
  return sets;
}
const isSame = (/** @type {Link} */ link) => Boolean(link.same), isPart = (/** @type {Link} */ link) => !link.same, any = () => true;

/** One computation up, and where those numbers lay before. @param {Sets} start */
function stepUp(start) {
  const {sets, get} = collector();
  for (const [id, set] of start) for (const link of tensors[id].links) if (isPart(link)) upward(tensors[id], set, link, get);
  return sets.size ? allUp(sets, isSame) : sets;
}
/** @param {Sets} start */
function stepDown(start) {
  const {sets, get} = collector();
  for (const [id, set] of start) for (const [user, link] of users[id]) if (isPart(link)) downward(tensors[user], link, set, get(user));
  return sets.size ? allDown(sets, isSame) : sets;
}

export const KINDS = /** @type {const} */ (["same", "near-from", "near-to", "far-from", "far-to"]);

/** Everything that elements are, came from and go into: for each of KINDS the sets by tensor.
 * @param {number} id @param {number[]} elements @returns {Sets[]} */
export function follow(id, elements) {
  const set = new Uint8Array(tensors[id].size);
  for (const e of elements) set[e] = 1;
  const same = allDown(allUp(new Map([[id, set]]), isSame), isSame);
  return [same, stepUp(same), stepDown(same), allUp(same, any), allDown(same, any)];
}
