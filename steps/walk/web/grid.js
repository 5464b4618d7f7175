/* Tensors drawn as tables: the last axis across, the one before it down, a table for each index of
   the others. Where heads stand inside tokens, (.., T, H, D), the rows are token and head. */
import { emit, make, on, range, read, shown, tensors } from "./data.js";
import { owner, place, sideBySide, tokenName } from "./names.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {{t: Tensor, cells: Map<number, HTMLElement>, labels: (() => void)[], bases: Map<number, string>, box: HTMLElement, digits: number, short: boolean, stale: boolean}} View */
/** @typedef {[number, number][]} Combo an axis and an index on it, for some axes */

/** @type {View[]} */
export const views = [];
/** @type {WeakMap<Element, View>} */
const viewOf = new WeakMap();

/** Every combination of the indices that are drawn of some axes. @param {number[]} axes @param {number[][]} window @returns {Combo[]} */
const combos = (axes, window) => axes.reduce((all, k) => all.flatMap(one => window[k].map(i => /** @type {Combo} */ ([...one, [k, i]]))), /** @type {Combo[]} */ ([[]]));

/** @param {Combo[]} list @param {number} at whether indices are left out before this one */
function skips(list, at) {
  const n = at ? list[at].findIndex(([, i], k) => i !== list[at - 1][k][1]) : -1;
  return n >= 0 && list[at][n][1] - list[at - 1][n][1] > 1;
}

/** Which axes go across, down and over tables. @param {Tensor} t */
function layout(t) {
  const n = t.shape.length, [a, b, c] = t.letters.slice(-3);
  const byToken = n >= 3 && a.startsWith("T") && b === "H" && c === "D";
  const across = n ? [n - 1] : [], down = n < 2 ? [] : byToken ? [n - 3, n - 2] : [n - 2];
  return {across, down, over: range(n).filter(k => !across.includes(k) && !down.includes(k)), byToken};
}

/** Draw a tensor. short: for the picture, where there is little room; window: the indices to draw.
 * @param {Tensor} t @param {{digits?: number, short?: boolean, window?: number[][]}} options @returns {View} */
export function draw(t, {digits = 4, short = false, window = t.window} = {}) {
  const plan = layout(t), box = make("div", {class: "sheets", "data-t": t.id});
  /** @type {View} */
  const view = {t, cells: new Map(), labels: [], bases: new Map(), box, digits, short, stale: true};
  const sheets = combos(plan.over, window);
  sheets.forEach((sheet, at) => {
    if (skips(sheets, at)) box.append(make("p", {class: "left-out"}, "…"));
    box.append(make("div", {class: "sheet"}, make("div", {class: "scroll"}, table(view, plan, sheet, window))));
  });
  views.push(view);
  viewOf.set(box, view);
  fill(view);
  return view;
}

/** @param {Tensor} t @param {Combo} sheet */
const titleOf = (t, sheet) => sheet.filter(([k]) => t.raw.shape[k] > 1 || t.letters[k] === "H").map(([k, i]) =>
  t.letters[k] === "H" ? "head " + (i + 1) : t.letters[k] === "B" ? "sentence " + (i + 1) : (/^\d+$/.test(t.letters[k]) ? "axis " + k : t.letters[k]) + " index " + i).join(", ");

/** @param {View} view @param {ReturnType<typeof layout>} plan @param {Combo} sheet @param {number[][]} window */
function table(view, plan, sheet, window) {
  const {t} = view, title = titleOf(t, sheet), head = sheet.find(([k]) => t.letters[k] === "H");
  const columns = combos(plan.across, window), rows = combos(plan.down, window);
  const made = make("table", {class: "grid", role: "grid", "aria-label": t.label + (title ? ", " + title : "")});
  if (title) made.append(make("caption", {class: head ? "hd hd" + head[1] % 8 : ""}, title));
  const labels = plan.down.length, top = header(view, columns, labels);
  if (top) made.append(top);
  const body = make("tbody"), first = {r: -1, c: -1};
  rows.forEach((row, r) => {
    const tr = make("tr", {class: plan.byToken && r && row[0][1] !== rows[r - 1][0][1] ? "apart" : ""});
    const inside = plan.byToken && r && row[0][1] === rows[r - 1][0][1];  // the token's name goes on beside it
    if (skips(rows, r)) body.append(make("tr", {}, make("td", {class: "gap", colspan: columns.length + labels - (inside ? 1 : 0)}, "…")));
    tr.append(...rowLabels(view, rows, r, () => sheet.concat(row)));
    columns.forEach((column, c) => {
      const between = gap(view, columns, c);
      if (between) tr.append(between);
      const e = [...sheet, ...row, ...column].reduce((sum, [k, i]) => sum + i * t.dims[k], 0);
      const td = make("td", {tabindex: first.r < 0 ? 0 : -1, "data-e": e, "data-r": r, "data-c": c});
      first.r = 0;
      view.cells.set(e, td);
      tr.append(td);
    });
    body.append(tr);
  });
  made.append(body);
  return made;
}

/** What stands over the columns: heads, or names of tokens; null where that is nothing. @param {View} view @param {Combo[]} columns @param {number} labels */
function header(view, columns, labels) {
  const {t, short} = view;
  const k = columns[0]?.[0]?.[0];
  if (k === undefined) return null;
  const corner = labels ? [make("td", {class: "gap", colspan: labels})] : [], top = make("tr", {}, ...corner);
  if (sideBySide(t, k)) {
    let last = /** @type {{head: number, th: any} | null} */ (null);
    columns.forEach((column, c) => {
      const head = Math.floor(column[0][1] / t.step.head_dim), between = gap({t}, columns, c);
      if (last?.head === head) { last.th.colSpan += between ? 2 : 1; return; }
      if (between) top.append(between);
      last = {head, th: make("th", {scope: "colgroup", class: "hd hd" + head % 8}, "head " + (head + 1))};
      top.append(last.th);
    });
    return make("thead", {}, top);
  }
  if (short && t.letters[k] !== "T") return null;
  columns.forEach((column, c) => {
    const between = gap({t}, columns, c), [, i] = column[0];
    if (between) top.append(between);
    const name = make("bdi");
    view.labels.push(() => { name.textContent = place(t, k, i) || String(i); });
    top.append(make("th", {scope: "col"}, name));
  });
  return make("thead", {}, top);
}

/** @param {{t: Tensor}} view @param {Combo[]} columns @param {number} c */
function gap({t}, columns, c) {
  if (skips(columns, c)) return make("td", {class: "gap"}, "…");
  const D = t.step.head_dim, [k] = columns[c][0] || [];
  if (!c || k === undefined || !sideBySide(t, k)) return null;
  return Math.floor(columns[c - 1][0][1] / D) === Math.floor(columns[c][0][1] / D) ? null : make("td", {class: "gap"});
}

/** @param {View} view @param {Combo[]} rows @param {number} r @param {() => Combo} where the row's indices */
function rowLabels(view, rows, r, where) {
  const {t, short} = view;
  return rows[r].map(([k, i], n) => {
    const token = n === 0 && rows[r].length === 2;
    if (token && r && rows[r - 1][0][1] === i) return null;
    const size = token ? rows.filter(row => row[0][1] === i).length + gapsWithin(rows, i) : 1, text = make("bdi");
    const th = make("th", {scope: "row", rowspan: size > 1 ? size : null}, text);
    const tell = () => {
      const moved = t.letters[k] === "T?" ? whose(t, where()) : "";
      const brief = short && t.letters[k] === "H";
      text.textContent = moved || (brief ? "h" + (i + 1) : rowName(t, k, i));
      th.className = (token ? "token" : "") + (moved ? " moved" : "") + (t.letters[k] === "T" && i === follow(t) ? " followed" : "");
    };
    view.labels.push(tell);
    return th;
  }).filter(Boolean);
}

/** How many rows of "…" stand between the rows of one token. @param {Combo[]} rows @param {number} i the token */
const gapsWithin = (rows, i) => rows.filter((row, at) => at && row[0][1] === i && rows[at - 1][0][1] === i && skips(rows, at)).length;

/** @param {Tensor} t @param {number} k @param {number} i */
function rowName(t, k, i) {
  if (sideBySide(t, k)) return "head " + (Math.floor(i / t.step.head_dim) + 1) + ", row " + i;
  return place(t, k, i) || (t.letters[k] === "B" ? "sentence " + (i + 1) : "row " + i);
}

/** Whose row it is where tokens have not their own: "was, head 1". @param {Tensor} t @param {Combo} at */
function whose(t, at) {
  if (t.raw.origin !== "rearranged" || !t.letters.includes("D")) return "";
  const {head, token} = owner(t, at.reduce((sum, [k, i]) => sum + i * t.dims[k], 0));
  return head < 0 || token < 0 ? "" : tokenName(t, token) + ", h" + (head + 1);
}
let followed = -1;
/** @param {number} i the token that is followed */
export const setFollowed = i => { followed = i; };
/** @param {Tensor} t */
const follow = t => t.step.tokens.length > followed ? followed : -1;

/** Put in the numbers with their heads and marks, and the names of rows. @param {View} view */
export function fill(view) {
  view.stale = true;
  const {t, cells, digits} = view, dead = t.dead, heat = t.raw.holds === "weights";
  for (const [e, td] of cells) {
    const value = t.value(e), whose = owner(t, e);
    let kind = whose.head >= 0 ? "hd hd" + whose.head % 8 + (whose.head % 2 ? " odd" : "") : "";
    if (heat && typeof value === "number") {
      kind += " heat";
      td.style.setProperty("--a", Math.max(0, Math.min(1, value)).toFixed(3));
    }
    if (dead?.[e] || value === "-inf") kind += " dead";
    view.bases.set(e, kind);
    td.className = kind;
    td.textContent = read(value, t, digits);
  }
  for (const tell of view.labels) tell();
}
on("turn", () => views.forEach(fill));

/** The view and element of a cell. @param {any} target @returns {{view: View, t: Tensor, e: number, td: HTMLElement} | null} */
export function cellOf(target) {
  const td = target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest("td[data-e]")) : null;
  const view = td && viewOf.get(/** @type {Element} */ (td.closest(".sheets")));
  return td && view ? {view, t: view.t, e: Number(td.dataset.e), td} : null;
}

/** Name, shape, axes and origin of a tensor. @param {Tensor} t @param {string} tag */
export function facts(t, tag) {
  const {raw} = t, layoutFact = !["rearranged", "copied", "unchanged"].includes(raw.origin) || !raw.stride.length ? "" : "strides " + shown(raw.stride) + ", " + (raw.contiguous ? "contiguous" : "not contiguous");
  return [make("div", {class: "title"}, make(tag, {class: "h"}, t.label)),
    make("div", {class: "facts reveal"}, make("span", {class: "shape"}, shown(raw.shape)),
      make("span", {class: "axes"}, raw.axes.length ? raw.axes.join(", ") : "one number"),
      raw.origin ? make("span", {class: "origin " + raw.origin}, raw.origin + (raw.shares_storage_with && raw.origin === "rearranged" ? ": the storage of " + raw.shares_storage_with : "")) : "",
      layoutFact ? make("span", {class: "axes"}, layoutFact) : "")];
}

/** Take the wrong turn, or the right one again. @param {Record<string, any> | null} swaps */
export function takeTurn(swaps) {
  for (const t of tensors) t.take(swaps?.[t.id] || null);
  emit("turn");
}
