/* Numbers in motion: view, transpose, merge and the wrong turn, a row at a time, along the measured
   maps. With reduced motion the same states are shown, and nothing travels. */
import { byId, data, emit, make, on, read, tensors } from "./data.js";
import { views } from "./grid.js";
import { indexText, owner, setText, tokenName } from "./names.js";
import { plates } from "./picture.js";
import { holder, placeOf, showStorage } from "./storage.js";
import { setTurn, turned } from "./turn.js";
import { units } from "./units.js";
/** @typedef {import("./grid.js").View} View */
/** @typedef {import("./units.js").Unit} Unit */

const PACE = 900, TRAVEL = 600;  // milliseconds
const calm = matchMedia("(prefers-reduced-motion: reduce)");
/** @type {{from: View, to: View, units: Unit[], at: number, timer: number, wrong: boolean} | null} */
let motion = null;

/** The card with the switches. */
export function card() {
  const lane = data.picture?.lanes[0] || [], merge = data.picture;
  const choices = merge ? [...lane.slice(1).map((id, k) => button(tensors[id].raw.function, () => start(lane[k], id))),
    button("merge", () => start(merge.contexts, merge.joined)),
    data.turn ? button("wrong turn", () => start(lane[0], lane[lane.length - 1], true)) : ""] : [];
  return make("div", {id: "motion", role: "group", "aria-label": "Numbers in motion"},
    make("p", {class: "choices"}, make("b", {}, "Watch it move: "), ...choices),
    make("p", {class: "controls"}, button("◂ Back", () => go(-1), "back"), button("Play ▸", play, "playing"), button("Step ▸", () => go(1), "forward"), button("Done", end, "done")),
    make("p", {id: "moving", "aria-live": "polite"}, "view, transpose and the merge compute nothing. See each number go from where it stands to where it comes to stand, and what the wrong turn does."));
}
/** @param {string} text @param {() => void} run @param {string | null} id */
const button = (text, run, id = null) => make("button", {type: "button", id: id && "motion-" + id, "data-motion": id ? null : text, onclick: () => { if (id !== "playing") stop(); run(); }}, text);

/** Begin a motion. @param {number} from @param {number} to @param {boolean} wrong */
function begin(from, to, wrong = false) {
  end();
  if (turned() !== wrong && (wrong || data.picture?.lanes.some(lane => lane.includes(to)))) setTurn(wrong);
  const source = plates.get(from), goal = plates.get(to);
  if (!source || !goal) return;
  motion = {from: source, to: goal, units: units(goal, from), at: 0, timer: 0, wrong: turned()};
  byId("motion").classList.add("active");
  for (const one of byId("motion").querySelectorAll("[data-motion]")) one.setAttribute("aria-pressed", one.dataset.motion === (wrong ? "wrong turn" : word()));
  show();
}

/** Begin a motion, and play it. @param {number} from @param {number} to @param {boolean} wrong */
export function start(from, to, wrong = false) {
  begin(from, to, wrong);
  play();
}

/** What this motion is called. */
const word = () => motion && (motion.to.t.id === data.picture?.joined ? "merge" : motion.to.t.raw.function);

/** Show the state: what has arrived, and what is still to come. */
function show() {
  if (!motion) return;
  const {units: all, at, from, to} = motion, unit = all[at - 1];
  mark("data-moving", [[from, unit?.from || []], [to, unit?.to || []]]);
  mark("data-waiting", [[to, all.slice(at).flatMap(one => one.to)]]);
  byId("moving").textContent = sentence();
  byId("motion-back").disabled = at === 0;
  byId("motion-forward").disabled = at === all.length;
  byId("motion-done").disabled = false;
  if (unit) showStorage(to.t, unit.to);
}

/** @param {string} name an attribute of cells @param {[View, number[]][]} lists those that have it, and no others */
function mark(name, lists) {
  for (const td of document.querySelectorAll(`[${name}]`)) td.removeAttribute(name);
  for (const [view, elements] of lists) for (const e of elements) view.cells.get(e)?.setAttribute(name, "");
}

/** @param {import("./data.js").Tensor} t @param {number[]} elements */
function textOf(t, elements) {
  const set = new Uint8Array(t.size);
  for (const e of elements) set[e] = 1;
  return setText(t, set);
}
/** Places in a storage, in words. @param {number[]} places */
const span = places => places.length === 1 ? "place " + places[0] : "places " + (places[places.length - 1] - places[0] === places.length - 1 ? places[0] + " to " + places[places.length - 1] : places.join(", "));

/** The motion so far in a sentence, measured on the record. */
function sentence() {
  if (!motion) return "";
  const {units: all, at, from, to} = motion, unit = all[at - 1];
  if (!unit) return `${from.t.label} before the ${motion.wrong ? "wrong turn" : word()}: ${all.length} ${all.length === 1 ? "row" : "rows"} to go.`;
  const places = unit.to.map(e => placeOf(to.t, e)), before = unit.from.map(e => placeOf(from.t, e));
  const whose = owner(to.t, unit.to[0]), who = whose.token >= 0 ? `: ${tokenName(to.t, whose.token)}, head ${whose.head + 1}` : "";
  const stored = holder(to.t, unit.to[0]).t === holder(from.t, unit.from[0]).t ? `It reads ${span(places)} of the storage, where the numbers were: nothing moved there.`
    : `The numbers were copied, from ${span(before)} of the one storage to ${span(places)} of the next.`;
  const done = at === all.length ? ` All ${at} rows are there; no number was computed.` : "";
  return `${at} of ${all.length}. ${textOf(to.t, unit.to)} holds ${textOf(from.t, unit.from)}${who}. ${wrongly(unit)}${stored}${done}`;
}

/** Whose place it is, after the wrong turn. @param {Unit} unit */
function wrongly({to: elements}) {
  if (!motion?.wrong || !motion.to.t.swapped) return "";
  const {t} = motion.to, at = indexText(t, Uint8Array.from({length: t.size}, (_, e) => Number(e === elements[0])));
  const [, head, token] = at.slice(1, -1).split(", ").map(Number), whose = owner(t, elements[0]);
  if (whose.head === head && whose.token === token) return "That is right by chance. ";
  return `The right turn has ${tokenName(t, token)}, head ${head + 1} there. `;
}

/** A step on or back. @param {number} by */
function go(by) {
  if (!motion) return;
  motion.at = Math.max(0, Math.min(motion.units.length, motion.at + by));
  if (by > 0 && motion.at) fly(motion.units[motion.at - 1]);
  show();
  if (motion.at === motion.units.length) stop();
}

/** Let a row's numbers travel. @param {Unit} unit */
function fly(unit) {
  if (!motion || calm.matches) return;
  const {from, to} = motion;
  unit.to.forEach((e, k) => {
    const start = from.cells.get(unit.from[k])?.getBoundingClientRect(), cell = to.cells.get(e), goal = cell?.getBoundingClientRect();
    if (!start || !goal || !cell) return;
    const flyer = make("span", {class: "flyer " + cell.className, "aria-hidden": "true"}, read(to.t.value(e), to.t, to.digits));
    Object.assign(flyer.style, {left: goal.left + scrollX + "px", top: goal.top + scrollY + "px", width: goal.width + "px", height: goal.height + "px"});
    document.body.append(flyer);
    cell.setAttribute("data-arriving", "");
    const moved = `translate(${start.left - goal.left}px, ${start.top - goal.top}px)`;
    flyer.animate([{transform: moved}, {transform: "none"}], {duration: TRAVEL, easing: "cubic-bezier(.4, 0, .2, 1)"}).finished
      .finally(() => { flyer.remove(); cell.removeAttribute("data-arriving"); });
  });
}

/** Play on, or pause. */
function play() {
  const lane = data.picture?.lanes[0];
  if (!motion && lane) begin(lane[0], lane[1]);
  if (!motion) return;
  if (motion.timer) { stop(); return; }
  if (motion.at === motion.units.length) { motion.at = 0; show(); }
  motion.timer = window.setInterval(() => go(1), PACE);
  byId("motion-playing").textContent = "Pause";
}

function stop() {
  if (!motion) return;
  window.clearInterval(motion.timer);
  motion.timer = 0;
  byId("motion-playing").textContent = motion.at === motion.units.length ? "Again ▸" : "Play ▸";
}

/** Everything is where it belongs again. */
export function end() {
  stop();
  motion = null;
  mark("data-moving", []);
  mark("data-waiting", []);
  const card = byId("motion");
  if (!card) return;
  for (const name of ["back", "forward", "done"]) byId("motion-" + name).disabled = true;
  byId("motion-playing").textContent = "Play ▸";
  card.classList.remove("active");
  for (const one of card.querySelectorAll("[data-motion]")) one.setAttribute("aria-pressed", "false");
  if (views.length) emit("light");
}
on("keep", () => { if (motion && !motion.timer) show(); });
