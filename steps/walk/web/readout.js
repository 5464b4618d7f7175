/* What is chosen, in words and digits: its address and owner, and the computation with its terms. */
import { byId, make, on, read } from "./data.js";
import { before, computation, seen, sources } from "./compute.js";
import { views } from "./grid.js";
import { choose, chosen, release } from "./light.js";
import { address, inWords, setText } from "./names.js";
import { anchor } from "./address.js";
/** @typedef {import("./compute.js").Ref} Ref */

/** The part of the page that says it. */
export function readout() {
  const made = make("section", {id: "readout", "aria-labelledby": "now"},
    make("p", {id: "now"}), make("p", {class: "lead"}, "Point at any number, or tap it: see what it is made of and what it goes into."), make("p", {id: "sum"}),
    make("button", {id: "kept", type: "button", hidden: true, onclick: release}));
  on("light", tell);
  on("keep", tell);
  return made;
}

/** Mark the cells of a term while it is pointed at. @param {Ref} ref @param {boolean} marked */
function point({t, e}, marked) {
  for (const view of views) if (view.t === t) view.cells.get(e)?.toggleAttribute("data-pointed", marked);
}

/** @param {Ref} ref @param {number} digits */
function term(ref, digits) {
  const {t, e} = ref, name = address(t, e);
  return make("button", {class: "term", type: "button", title: name, "aria-label": read(t.value(e), t, digits) + ", " + name,
    onpointerenter: () => point(ref, true), onpointerleave: () => point(ref, false),
    onfocus: () => point(ref, true), onblur: () => point(ref, false),
    onclick: () => { point(ref, false); choose(t, e, true); byId("now")?.focus(); }}, read(t.value(e), t, digits));
}

/** @param {Ref[]} refs */
const links = refs => sources(refs, setText).flatMap(({t, text}, k) =>
  [k ? " and " : "", make("a", {href: "#" + anchor(t)}, text)]);

function tell() {
  const {t, e, kept} = chosen;
  if (!t) return;
  const words = inWords(t, e), now = byId("now");
  now.tabIndex = -1;
  now.replaceChildren(make("a", {href: "#" + anchor(t)}, make("code", {}, address(t, e))), " = ",
    make("strong", {}, read(t.value(e), t)), words ? make("span", {class: "words"}, make("bdi", {}, words)) : "");
  byId("kept").hidden = !kept;
  byId("kept").replaceChildren("kept ", make("span", {"aria-hidden": "true"}, "✕"), make("span", {class: "away"}, ": let go"));
  byId("sum").replaceChildren(...sumOf());
}

/** How the chosen number was made, written out. */
export function sumOf() {
  const {t, e} = /** @type {Ref} */ (chosen), sum = computation(t, e);
  return sum ? worked(sum) : moved();
}

/** @param {NonNullable<ReturnType<typeof computation>>} sum */
function worked(sum) {
  const parts = sum.parts.map(part => typeof part === "string" ? part : term(part, sum.digits));
  return [make("span", {class: "made"}, "= ", ...parts), make("span", {class: "of"}, "from ", ...links(sum.from))];
}

/** Of a number that was only moved, or drawn. */
function moved() {
  const {t, e} = /** @type {Ref} */ (chosen), earlier = before({t, e}), from = earlier && seen(earlier);
  if (from) return [make("span", {class: "made"}, t.raw.origin + ", not computed: ", term(from, 4)), make("span", {class: "of"}, "from ", ...links([from]))];
  if (t.raw.origin === "drawn") return ["Drawn at random, computed from nothing."];
  return ["What it came from and goes into is lit."];
}
