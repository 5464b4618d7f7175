/* Lines from where a row's numbers stand to where they come to stand, between neighbouring tables. */
import { byId, on } from "./data.js";
import { kindOf } from "./light.js";
import { owner } from "./names.js";
import { units } from "./units.js";
import { moves, plates } from "./picture.js";
/** @typedef {import("./grid.js").View} View */

const SVG = "http://www.w3.org/2000/svg";
/** @type {{path: SVGElement, view: View, e: number}[]} */
let drawn = [];

/** Draw all lines anew: after a change of size, or of the turn. */
export function redraw() {
  const stage = byId("picture");
  if (!stage) return;
  stage.querySelector("svg")?.remove();
  const svg = document.createElementNS(SVG, "svg"), frame = new DOMRect(stage.getBoundingClientRect().left - stage.scrollLeft, stage.getBoundingClientRect().top);
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "lines");
  svg.style.width = stage.scrollWidth + "px";
  drawn = moves().flatMap(([from, to]) => pair(svg, frame, from, to));
  stage.prepend(svg);
  lit();
}

/** @param {SVGElement} svg @param {DOMRect} frame @param {number} from @param {number} to */
function pair(svg, frame, from, to) {
  const source = plates.get(from), goal = plates.get(to);
  if (!source || !goal) return [];
  const right = source.box.getBoundingClientRect().right, left = goal.box.getBoundingClientRect().left;
  if (left - right < 12) return [];  // the one is below the other
  return units(goal, from).flatMap(({to: elements, from: sources}) => {
    const a = source.cells.get(sources[0])?.closest("tr"), b = goal.cells.get(elements[0])?.closest("tr");
    if (!a || !b) return [];
    const y = (/** @type {Element} */ row) => { const box = row.getBoundingClientRect(); return (box.top + box.bottom) / 2 - frame.top; };
    const x0 = right - frame.left + 1, x1 = left - frame.left - 1, middle = (x0 + x1) / 2, head = owner(goal.t, elements[0]).head;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${x0} ${y(a)}C${middle} ${y(a)} ${middle} ${y(b)} ${x1} ${y(b)}`);
    path.setAttribute("class", "hd" + head % 8);
    svg.append(path);
    return [{path, view: goal, e: elements[0]}];
  });
}

function lit() {
  for (const {path, view, e} of drawn) {
    const width = view.t.shape[view.t.shape.length - 1], first = e - e % width, kind = Math.min(...Array.from({length: width}, (_, k) => {
      const found = kindOf(view.t, first + k);
      return found < 0 ? 9 : found;
    }));
    path.classList.toggle("on", kind < 9);
    path.classList.toggle("same", kind === 0);
  }
}
on("light", lit);
