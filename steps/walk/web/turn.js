/* The wrong turn of step 15, and all that follows from it: what every tensor holds after it. */
import { Tensor, byId, data, make, tensors } from "./data.js";
import { shownState, writeAddress } from "./address.js";
import { takeTurn } from "./grid.js";

export const turned = () => shownState.turned;

/** Take the wrong turn, or the right one again. @param {boolean} wrong */
export function setTurn(wrong) {
  if (!data.turn || wrong === shownState.turned) return;
  shownState.turned = wrong;
  takeTurn(wrong ? data.turn.swaps : null);
  for (const part of document.querySelectorAll(".turned-only")) /** @type {HTMLElement} */ (part).hidden = !wrong;
  document.body.classList.toggle("turned", wrong);
  for (const one of document.querySelectorAll(".turn")) one.setAttribute("aria-pressed", String(wrong));
  byId("turnsaid").textContent = wrong ? said() : "";
  writeAddress();
}

/** How much is elsewhere, counted over the splits themselves. */
function said() {
  let moved = 0, total = 0;
  for (const t of tensors) {
    if (!t.swapped || t.raw.function === t.right.function) continue;
    const right = new Tensor(t.right, t.id);
    for (let e = 0; e < t.size; e++) {
      if (t.value(e) === undefined) continue;
      total++;
      if (t.value(e) !== right.value(e)) moved++;
    }
  }
  return `Wrong turn: ${data.turn?.call} in place of view and transpose. Same shapes, but ${moved} of ${total} numbers stand elsewhere.`;
}

/** The banner over the page while the wrong turn is taken. */
export function banner() {
  return make("div", {class: "banner turned-only", hidden: true}, make("span", {id: "turnsaid", role: "status"}), " ",
    make("button", {type: "button", class: "turn", "aria-pressed": "false", onclick: () => setTurn(false)}, "Right turn again"));
}
