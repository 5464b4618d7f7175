/* The steps in which numbers move from one tensor to another: a row of one head at a time. */
import { before } from "./compute.js";
import { owner } from "./names.js";
/** @typedef {import("./grid.js").View} View */
/** @typedef {{to: number[], from: number[]}} Unit elements of the result, and what they were */

/** The element of an earlier tensor that an element was; -1 where there is none.
 * @param {import("./compute.js").Ref} ref @param {number} from the earlier tensor */
export function traced(ref, from) {
  /** @type {import("./compute.js").Ref | null} */
  let at = ref;
  while (at && at.t.id !== from) at = before(at);
  return at ? at.e : -1;
}

/** In the order of reading. @param {View} view @param {number} from @returns {Unit[]} */
export function units(view, from) {
  /** @type {Unit[]} */
  const made = [];
  let last = /** @type {{row: Element | null, head: number}} */ ({row: null, head: -1});
  for (const [e, td] of view.cells) {
    const source = traced({t: view.t, e}, from), row = td.closest("tr"), {head} = owner(view.t, e);
    if (source < 0) continue;
    if (row !== last.row || head !== last.head) made.push({to: [], from: []});
    last = {row, head};
    made[made.length - 1].to.push(e);
    made[made.length - 1].from.push(source);
  }
  return made;
}
