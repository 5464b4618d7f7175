/* The number that is chosen, and everything that lights with it. One number is always chosen:
   pointing, keys or touch change it; Enter, a click or a tap keeps it until it is let go. */
import { byId, emit, on, tensors } from "./data.js";
import { KINDS, findUsers, follow } from "./follow.js";
import { cellOf, views } from "./grid.js";
import { address, count, inWords, named, setText } from "./names.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {import("./grid.js").View} View */

/** @type {{t: Tensor | null, e: number, kept: boolean, sets: import("./follow.js").Sets[]}} */
export const chosen = {t: null, e: 0, kept: false, sets: []};

/** Choose a number. @param {Tensor} t @param {number} e @param {boolean} kept */
export function choose(t, e, kept = false) {
  const told = chosen.kept !== kept || kept && (chosen.t !== t || chosen.e !== e);
  Object.assign(chosen, {t, e, kept});
  relight();
  if (told) emit("keep");
}

/** Let go of a kept number: what is pointed at is chosen again. */
export function release() {
  if (!chosen.kept) return;
  chosen.kept = false;
  emit("keep");
  emit("light");
}

/** How an element of a tensor is lit: a place in KINDS, or -1. @param {Tensor} t @param {number} e */
export const kindOf = (t, e) => chosen.sets.findIndex(sets => sets.get(t.id)?.[e]);

/** @type {WeakMap<View, Map<number, number>>} */
const shownKinds = new WeakMap();
/** @param {View} view */
function light(view) {
  const {t} = view, sets = chosen.sets.map(one => one.get(t.id)), before = shownKinds.get(view) || new Map();
  shownKinds.set(view, before);
  if (view.stale) before.clear();
  view.stale = false;
  for (const [e, td] of view.cells) {
    const kind = sets.findIndex(set => set?.[e]);
    if (before.get(e) === kind) continue;
    before.set(e, kind);
    td.className = view.bases.get(e) + (kind < 0 ? "" : " " + KINDS[kind]);
  }
  view.box.classList.toggle("lit", sets.some(Boolean));
}

/** Work out and show what lights. */
export function relight() {
  if (!chosen.t) return;
  chosen.sets = follow(chosen.t.id, [chosen.e]);
  for (const view of views) light(view);
  emit("light");
}
on("turn", () => { findUsers(); relight(); });
on("draw", () => { for (const view of views) light(view); });

let waiting = false;
/** @type {{t: Tensor, e: number} | null} */
let next = null;
/** Choose what is pointed at, once a frame. @param {Tensor} t @param {number} e */
function soon(t, e) {
  next = {t, e};
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (next && !chosen.kept) choose(next.t, next.e);
  });
}

/** Say to a screen reader what was chosen, whose it is and where it goes. */
export function speak() {
  const {t, e, sets} = chosen;
  if (!t) return;
  /** @type {Record<string, string[]>} */
  const told = {"The same number in ": [], "Came from ": [], "Goes into ": []};
  for (const other of tensors) {
    if (other.raw.link || other.raw.wrong) continue;
    const kind = sets.slice(0, 3).findIndex(one => one.get(other.id)?.includes(1));
    if (kind < 0 || other === t) continue;
    const set = /** @type {Uint8Array} */ (sets[kind].get(other.id));
    told[Object.keys(told)[kind]].push(kind ? count(set) + " of " + other.label : setText(other, set));
  }
  const parts = Object.entries(told).filter(([, list]) => list.length).map(([words, list]) =>
    words + list.slice(0, 6).join(", ") + (list.length > 6 ? " and " + (list.length - 6) + " more" : "") + ".");
  const dead = t.dead?.[e] ? ["It carries nothing on."] : [];
  const words = inWords(t, e);
  byId("live").textContent = [named(t, e) + (words ? ": " + words : "") + ".", ...dead, ...parts].join(" ");
}

/* ---------- pointer and keyboard ---------- */
let resting = false;  // the pointer, while the keyboard moves cells along under it
/** @param {PointerEvent} event */
function hover(event) {
  const cell = event.pointerType === "touch" ? null : cellOf(event.target);
  if (cell && !chosen.kept) soon(cell.t, cell.e);
}
/** @param {HTMLElement} td the one of its table that Tab comes to */
function rove(td) {
  for (const other of td.closest("table")?.querySelectorAll("td[tabindex='0']") || []) /** @type {HTMLElement} */ (other).tabIndex = -1;
  td.tabIndex = 0;
}
/** @param {{t: Tensor, e: number, td: HTMLElement}} cell @param {boolean} kept */
function go({t, e, td}, kept) {
  rove(td);
  resting = true;
  if (document.activeElement !== td) td.focus();
  choose(t, e, kept);
  speak();
}

/** By how many tables, rows and columns a key moves. @type {Record<string, [number, number]>} */
const STEPS = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]};

/** The cell that a key leads to; null at the edge. @param {HTMLElement} td @param {string} key @param {boolean} far */
function neighbour(td, key, far) {
  const tables = [...td.closest(".sheets")?.querySelectorAll("table") || []];
  const at = tables.indexOf(/** @type {HTMLTableElement} */ (td.closest("table"))), r = Number(td.dataset.r), c = Number(td.dataset.c);
  const last = /** @param {"r" | "c"} name */ name => Math.max(...[...tables[0].querySelectorAll("td[data-e]")].map(one => Number(/** @type {HTMLElement} */ (one).dataset[name])));
  const rows = last("r"), columns = last("c");
  const find = (/** @type {number} */ table, /** @type {number} */ row, /** @type {number} */ column) => tables[table]?.querySelector(`[data-r="${row}"][data-c="${column}"]`);
  if (key === "Home") return find(far ? 0 : at, far ? 0 : r, 0);
  if (key === "End") return find(far ? tables.length - 1 : at, far ? rows : r, columns);
  if (!STEPS[key]) return null;
  const [down, right] = STEPS[key], inside = find(at, r + down, c + right);
  if (inside) return inside;
  const next = at + down + right;  // on in the table beside it
  return find(next, down > 0 ? 0 : down < 0 ? rows : r, right > 0 ? 0 : right < 0 ? columns : c) || td;
}

/** @param {KeyboardEvent} event */
function keyed(event) {
  if (event.key === "Escape") { release(); return; }
  const cell = cellOf(event.target);
  if (!cell || event.altKey || event.metaKey) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    if (chosen.kept && chosen.t === cell.t && chosen.e === cell.e) release(); else go(cell, true);
    return;
  }
  const to = cellOf(neighbour(cell.td, event.key, event.ctrlKey));
  if (!to) return;
  event.preventDefault();
  go(to, false);
}

/** A click keeps a number, or lets go of it; one beside all tables and controls lets go. @param {Event} event */
function clicked(event) {
  const cell = cellOf(event.target), target = /** @type {Element} */ (event.target);
  if (!cell) {
    if (!target.closest("a, button, input, summary, label, select")) release();
    return;
  }
  if (chosen.kept && chosen.t === cell.t && chosen.e === cell.e) release(); else go(cell, true);
}

/** Begin to listen. */
export function listen() {
  document.addEventListener("pointerover", event => { if (!resting) hover(event); });
  document.addEventListener("pointermove", event => { if (resting && (event.movementX || event.movementY)) { resting = false; hover(event); } });
  document.addEventListener("click", clicked);
  document.addEventListener("keydown", keyed);
  document.addEventListener("focusin", event => {
    const cell = cellOf(event.target);
    if (!cell || chosen.kept || !cell.td.matches(":focus-visible")) return;
    resting = true;
    rove(cell.td);
    choose(cell.t, cell.e);
    speak();
  });
}
export const keptAddress = () => chosen.t ? address(chosen.t, chosen.e) : "";
