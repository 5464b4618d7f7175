/* The page, put together: the head, the picture with what is chosen, and the steps. */
import { byId, data, make, on, tensors } from "./data.js";
import { readAddress, setActs } from "./address.js";
import { setFollowed } from "./grid.js";
import { choose, listen } from "./light.js";
import { redraw } from "./lines.js";
import { card, end, start } from "./motion.js";
import { picture } from "./picture.js";
import { showMode, switches } from "./predict.js";
import { readout } from "./readout.js";
import { open, section } from "./steps.js";
import { dock } from "./trail.js";
import { banner, setTurn } from "./turn.js";
import { showStorage } from "./storage.js";

/** The sentence, its tokens marked. */
function sentence() {
  if (data.report) return make("p", {class: "sentence"}, make("bdi", {}, data.text));
  const text = make("bdi"), token = data.tokens[data.follow] || "", at = data.text.indexOf(token);
  if (at < 0 || !token) text.append(data.text);
  else text.append(data.text.slice(0, at), make("mark", {}, token), data.text.slice(at + token.length));
  return make("p", {class: "sentence"}, "“", text, "”");
}

/** The words that the page uses, in the terminal's sentences. */
function words() {
  const told = make("details", {id: "words"}, make("summary", {}, "Words and letters"));
  const inside = make("div", {class: "wordlist"});
  for (const part of data.legend) {
    if (typeof part === "string") { inside.append(make("p", {}, part)); continue; }
    if (inside.lastChild?.tagName !== "DL") inside.append(make("dl"));
    inside.lastChild.append(make("dt", {}, part[0]), make("dd", {}, part[1]));
  }
  told.append(inside);
  return told;
}

/** What the colours and borders mean. */
const legend = () => make("ul", {class: "legend"}, ...[["same", "the same number"], ["near-from", "came from"], ["far-from", "further back"], ["near-to", "goes into"], ["far-to", "further on"], ["dead", "0 or -inf: carries nothing"]]
  .map(([kind, text]) => make("li", {}, make("i", {class: kind}), text)));

/** The stage: what is chosen, the picture, and the storage. */
function stage() {
  const drawn = picture(start, card());
  if (!drawn) return null;
  return make("div", {id: "stage", class: "reveal"}, readout(), drawn, make("div", {id: "storage"}), legend());
}

/** A report opens at its first fault, and the number is one of the wrong line. */
function atFault() {
  const t = tensors.find(one => one.raw.mark === "first"), step = t?.step || data.steps[0];
  open(step.number);
  const shown = t?.drawn ? t : tensors.find(one => one.drawn);
  if (shown) choose(shown, 0);
}

/** The number that the page opens on: a score of the followed token with another one. */
function first() {
  const found = data.picture, t = found && tensors[found.scores];
  if (!t) return;
  const [, heads, tokens] = t.shape, other = data.follow ? data.follow - 1 : Math.min(1, tokens - 1);
  choose(t, [0, heads - 1, data.follow, other].reduce((sum, i, k) => sum + i * t.dims[k], 0));
}

function build() {
  byId("top").append(make("h1", {}, data.report ? "Your attention, one line at a time" : "Multi-head attention, one shape at a time"), sentence(), banner(),
    make("div", {class: "tools"}, ...data.report ? [] : switches(), words()));
  setFollowed(data.report ? -1 : data.follow);
  const drawn = stage(), main = byId("main");
  if (drawn) main.append(drawn);
  main.append(make("div", {id: "steps", tabindex: -1}, ...data.steps.map(section)));
  for (const step of data.steps) {
    const line = byId("step" + step.number).querySelector("summary");
    line.append(make("span", {class: "score", id: "score" + step.number}));
  }
  return drawn;
}

const drawn = build();
setActs({open, turn: setTurn});
on("draw", () => { if (!data.report) showMode(); });
listen();
end();
if (data.report) atFault(); else { first(); showMode(); }
readAddress();
window.addEventListener("popstate", () => readAddress());
document.addEventListener("click", event => {
  const link = event.target instanceof Element && /** @type {HTMLAnchorElement | null} */ (event.target.closest("a[href^='#']"));
  if (!link || event.defaultPrevented) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  readAddress();
});
if (data.report) dock(tensors.some(t => t.drawn));
if (drawn) {
  redraw();
  new ResizeObserver(redraw).observe(byId("picture"));
  on("turn", redraw);
  const enough = [0, .2, .4, .6, .8, 1];
  new IntersectionObserver(([change]) => dock(change.intersectionRatio < .5), {threshold: enough}).observe(byId("picture"));
  showStorage();
}
window.addEventListener("beforeprint", () => document.body.classList.add("printing"));
