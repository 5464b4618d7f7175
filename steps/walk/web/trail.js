/* The trail of the chosen number, docked at the bottom while the picture is out of sight: a small map
   of every tensor on it, which names the indices that are lit. */
import { byId, data, indexOf, make, on, tensors } from "./data.js";
import { anchor } from "./address.js";
import { KINDS } from "./follow.js";
import { chosen, release } from "./light.js";
import { sumOf } from "./readout.js";
import { indexText, named, count, inWords } from "./names.js";
/** @typedef {import("./data.js").Tensor} Tensor */

const WORDS = ["the same number", "it came from", "it goes into", "it came from, further back", "it goes into, further on"];
const SIGNS = ["=", "←", "→", "←", "→"];
let docked = false;

/** Whether the dock is shown. @param {boolean} shown */
export function dock(shown) {
  docked = shown;
  byId("dock").hidden = !shown;
  document.body.classList.toggle("docked", shown);
  tell();
}

/** Which tensors have a part in the trail, and how. @returns {[Tensor, number, Uint8Array][]} */
function stops() {
  const picture = data.picture, main = picture ? [...picture.lanes.flat(), picture.scores, ...picture.weights, picture.contexts, picture.joined, picture.output] : [];
  return tensors.flatMap(t => {
    if (t.raw.link && !data.report || t.raw.wrong || !data.report && t.raw.step > 19 && t !== chosen.t) return [];
    const kind = chosen.sets.findIndex(sets => sets.get(t.id)?.includes(1));
    if (kind < 0 || kind > 2 && !data.report && t.raw.step > 13 && !main.includes(t.id)) return [];
    return [/** @type {[Tensor, number, Uint8Array]} */ ([t, kind, chosen.sets[kind].get(t.id)])];
  });
}

function tell() {
  const {t, e, kept} = chosen;
  if (!docked || !t) return;
  byId("dock").replaceChildren(
    make("p", {class: "now"}, make("strong", {}, named(t, e)), " ", make("span", {}, inWords(t, e)), " ",
      kept ? make("button", {type: "button", class: "chip", onclick: release}, "kept ", make("span", {"aria-hidden": "true"}, "✕"), make("span", {class: "away"}, ": let go")) : "",
      make("span", {class: "sum"}, ...sumOf())),
    make("ol", {class: "stops", tabindex: 0, "aria-label": "Trail of " + named(t, e)}, ...stops().map(([other, kind, set]) =>
      make("li", {class: KINDS[kind]}, make("a", {href: "#" + anchor(other)}, map(other), make("b", {}, other.label),
        make("span", {}, make("span", {"aria-hidden": "true"}, SIGNS[kind] + " "), make("span", {class: "away"}, WORDS[kind] + ": "), indexText(other, set) || count(set) + " of " + other.size))))));
  centre();
}

/** Bring what is the same number into sight. */
function centre() {
  const list = byId("dock").querySelector("ol"), same = list?.querySelector("li.same");
  if (same) list.scrollLeft = same.offsetLeft - list.clientWidth / 2 + same.clientWidth / 2;
}

/** A small map: a square for every element that is drawn. @param {Tensor} t */
function map(t) {
  const canvas = make("canvas", {"aria-hidden": "true"}), n = t.shape.length, size = 4, step = 5;
  const cols = n ? t.window[n - 1].length : 1, rows = t.window.slice(0, -1).reduce((all, list) => all * list.length, 1);
  const sheets = n > 2 ? Math.max(1, rows / t.window[n - 2].length) : 1, high = rows / sheets, scale = window.devicePixelRatio || 1;
  const wide = sheets * (cols * step + 4) - 4;
  canvas.width = wide * scale; canvas.height = high * step * scale;
  canvas.style.width = wide + "px";
  const pen = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
  pen.scale(scale, scale);
  let at = 0;
  const colour = ["--same", "--from", "--to", "--from", "--to"].map(name => css.getPropertyValue(name));
  for (let e = 0; e < t.size; e++) {
    if (!indexOf(e, t.shape).every((i, k) => t.places[k].has(i))) continue;
    const kind = chosen.sets.findIndex(sets => sets.get(t.id)?.[e]);
    const c = at % cols, row = Math.floor(at / cols), sheet = Math.floor(row / high);
    pen.fillStyle = kind < 0 ? css.getPropertyValue("--line") : colour[kind];
    pen.fillRect(sheet * (cols * step + 4) + c * step, (row - sheet * high) * step, size, size);
    at++;
  }
  return canvas;
}
on("light", tell);
on("keep", tell);
