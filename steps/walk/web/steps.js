/* The steps below the picture, or the files of a report: folded, and drawn when they are opened. */
import { byId, data, emit, make, on, product, shown, tensors } from "./data.js";
import { anchor, shownState, writeAddress } from "./address.js";
import { draw, facts } from "./grid.js";
import { question } from "./predict.js";
/** @typedef {import("./data.js").Tensor} Tensor */
/** @typedef {import("./data.js").Step} Step */
/** @typedef {import("./data.js").Group} Group */
/** @typedef {import("./data.js").Note} Note */

const FOLLOWED = 200000;

/** Text with `code` in it. @param {string} text */
const said = text => make("p", {}, make("bdi", {}, ...text.split("`").map((part, k) => k % 2 ? make("code", {}, part) : part)));
/** @param {string} text */
const sentence = text => text.slice(0, 1).toUpperCase() + text.slice(1) + (/[.!?:]$/.test(text) ? "" : ".");

/** @param {Step} step */
export function section(step) {
  const ids = [step, ...step.wrong_turns].flatMap(part => part.groups.flatMap(group => group.made));
  const goals = make("div", {class: "goals", hidden: true}, ...ids.map(id => make("span", {id: anchor(tensors[id])})));  // until it is drawn
  const body = make("div", {class: "inside"}, goals), failed = step.checks.filter(check => !check.holds).length;
  const held = !step.checks.length ? "" : failed ? failed + " of " + step.checks.length + " checks fail" : step.checks.length === 1 ? "1 check holds" : step.checks.length + " checks hold";
  const fold = make("details", {class: "fold", "data-step": step.number}, make("summary", {},
    make("h2", {id: "h" + step.number}, make("span", {class: "no"}, String(step.number)), make("bdi", {}, step.title)),
    make("span", {class: "held" + (failed ? " bad" : "")}, held)), body);
  let byHand = false;  // opened or closed by the reader, not by an address
  fold.addEventListener("toggle", () => {
    if (fold.open && body.contains(goals)) fill(step, body);
    if (fold.open) shownState.step = step.number;
    else if (shownState.step === step.number) shownState.step = 0;
    if (byHand) writeAddress();
    byHand = false;
  });
  fold.querySelector("summary").addEventListener("click", () => { byHand = true; });
  return make("section", {class: "step", id: "step" + step.number, "aria-labelledby": "h" + step.number}, fold);
}

/** Open a step, and draw what is in it. @param {number} number */
export function open(number) {
  const fold = byId("step" + number)?.querySelector("details"), step = data.steps.find(one => one.number === number);
  if (!fold || !step) return;
  const body = fold.querySelector(".inside");
  if (body.querySelector(".goals")) fill(step, body);
  fold.open = true;
  shownState.step = number;
}

/** @param {Step} step @param {HTMLElement} body */
function fill(step, body) {
  body.replaceChildren();
  if (step.article.length) body.append(make("p", {class: "article"}, step.article.map(text => "“" + text + "”").join("; ")));
  let told = make("div", {class: "told"}, ...step.says.map(said));
  if (step.repair?.length) {
    body.append(told, repair(step.repair));
    told = make("div", {class: "told"});
  }
  told.append(...(step.shown || []).map(said));
  body.append(step.trace?.length ? make("div", {class: "found"}, told, overview(step)) : told);
  if (data.turn && step.groups.some(group => group.made.some(id => data.turn?.swaps[id])))
    body.append(make("p", {class: "turned-only banner", hidden: !shownState.turned}, "These are the numbers after the wrong turn of step 15; notes and checks are made with the right turn."));
  if (step.look) body.append(make("p", {class: "look reveal"}, make("b", {}, "Look at: "), make("bdi", {}, step.look)));
  body.append(make("div", {class: "flow"}, ...flow(step)));
  for (const turn of step.wrong_turns) {
    body.append(make("div", {class: "wrongturn"}, make("h3", {}, "Wrong turn"), make("p", {}, sentence(turn.says)),
      make("div", {class: "flow"}, ...turn.groups.map(group => statement(group, "h4"))), turn.error ? make("p", {class: "error"}, turn.error) : "",
      turn.why ? make("p", {class: "reveal"}, sentence(turn.why)) : "", notesOn(step, [turn.name])));
  }
  const placed = [...step.groups.flatMap(names), ...step.wrong_turns.map(turn => turn.name)];
  body.append(notesOn(step, step.notes_about.filter(name => !placed.includes(name))));
  if (step.checks.length) body.append(make("h3", {class: "part"}, "Checks"), make("ul", {class: "checks"}, ...step.checks.map(check => make("li", {},
    make("span", {class: check.holds ? "ok" : "no"}, check.holds ? "✓ holds " : "✗ fails "), make("bdi", {}, check.claim + (check.detail ? ": " + check.detail : ""))))));
  for (const box of body.querySelectorAll(".scroll")) sized.observe(box);
  emit("draw");
}

/** @param {Group} group */
const names = group => group.made.map(id => tensors[id]).filter(t => !t.raw.link).map(t => t.label);
/** Whether two statements are alike, as those of queries, keys and values. @param {Group} a @param {Group | undefined} b */
function alike(a, b) {
  const [one, two] = [a, b].map(group => tensors[group?.made[group.made.length - 1] ?? -1]);
  return Boolean(one && two && one.raw.function === two.raw.function && one.raw.shape.join() === two.raw.shape.join());
}
/** The statements of a step, and under those that are alike the notes on them. @param {Step} step */
function flow(step) {
  let told = /** @type {string[]} */ ([]);
  return step.groups.flatMap((group, at) => {
    told.push(...names(group));
    if (alike(group, step.groups[at + 1])) return [statement(group, "h3")];
    const notes = notesOn(step, told);
    told = [];
    return [statement(group, "h3"), notes];
  });
}
/** The notes that explain some names; "" where there is none. @param {Step} step @param {string[]} about */
function notesOn(step, about) {
  const notes = step.notes.filter((_, k) => about.includes(step.notes_about[k]));
  return notes.length ? make("div", {class: "notes reveal"}, ...notes.map(note)) : "";
}

/** Wrong and right side by side. @param {{line: number, old: string, new: string}[]} changes */
const repair = changes => make("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": "The repair"}, make("table", {class: "repair"},
  make("thead", {}, make("tr", {}, ...["line", "wrong", "right: proved by running it"].map(text => make("th", {scope: "col"}, text)))),
  make("tbody", {}, ...changes.map(one => make("tr", {}, make("th", {scope: "row"}, String(one.line)), make("td", {}, make("code", {}, one.old)), make("td", {}, make("code", {}, one.new)))))));

/** The operations of a file at a glance, the first wrong one marked. @param {Step} step */
function overview(step) {
  const ids = step.groups.flatMap(group => group.made), trace = step.trace || [];
  const told = [trace.some(row => row[0]), true, true, trace.some(row => row[2])];  // no column is empty
  const cells = (/** @type {string} */ tag, /** @type {(string | Node)[]} */ texts) => texts.filter((_, k) => told[k]).map(text => make(tag, tag === "th" ? {scope: "col"} : {}, text));
  return make("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": "The operations of " + step.title}, make("table", {class: "trace"},
    make("thead", {}, make("tr", {}, ...cells("th", ["line", "operation", "shape", "holds"]))),
    make("tbody", {}, ...trace.map(([line, shape, holds], k) => make("tr", {class: tensors[ids[k]].raw.mark},
      ...cells("td", [String(line), make("a", {href: "#" + anchor(tensors[ids[k]])}, tensors[ids[k]].label), shown(shape), holds]))))));
}

/** A statement, and the tensors that it made. @param {Group} group @param {string} tag */
function statement(group, tag) {
  const code = make("code"), here = make("code", {class: "here reveal"});
  const box = make("div", {class: "statement" + (group.made.length ? "" : " bare"), style: null}, code, here);
  if (group.depth) box.style.marginInlineStart = group.depth + "rem";
  const last = tensors[group.made[group.made.length - 1]];
  const tell = () => {
    const from = last?.raw.code === undefined ? group : /** @type {{code: string, here: string}} */ (last.raw);
    code.textContent = from.code;
    here.textContent = from.here ? (data.report ? "" : "here: ") + from.here : "";
  };
  tell();
  if (last && data.turn?.swaps[last.id]) on("turn", tell);
  const made = group.made.map(id => tensor(tensors[id], tag));
  box.append(...made.length > 1 ? [make("div", {class: "pair"}, ...made)] : made);
  return box;
}

/** A tensor with what is said of it, its question and its table. @param {Tensor} t @param {string} tag */
export function tensor(t, tag) {
  const told = facts(t, tag), body = make("div", {class: "reveal"});
  const box = make("div", {class: "tensor" + (t.drawn ? "" : " bare") + (t.raw.mark ? " " + t.raw.mark : ""), id: anchor(t)}, ...told);
  if (data.turn?.swaps[t.id]) on("turn", () => {
    const again = facts(t, tag);
    box.querySelector(".facts").replaceWith(again[1]);
    again[1].hidden = told[1].hidden;
  });
  if (t.raw.ask) box.append(question(t, box));
  box.append(body);
  if (t.raw.stage) box.querySelector(".facts").append(make("span", {class: "axes"}, "holds " + t.raw.stage));
  if (t.raw.mark) box.prepend(make("strong", {class: "verdict"}, t.raw.mark === "first" ? "✗ the first wrong line" : "made from what is wrong"));
  if (t.drawn) table(t, body);
  if (t.raw.read?.length && t.step.number < 20) body.append(make("p", {class: "partly"}, "Made in a call whose inside is not followed."));
  return box;
}

/** A weight is folded until it is asked for. @param {Tensor} t @param {HTMLElement} body */
function table(t, body) {
  const drawn = product(t.window.map(list => list.length)), whole = product(t.raw.shape);
  const partly = drawn < whole ? make("p", {class: "partly"}, drawn.toLocaleString("en") + " of " + whole.toLocaleString("en") + " numbers are shown" +
    (t.raw.rows ? ": rows that are looked up" : t.size > FOLLOWED ? "; too many to follow" : "") + ".") : "";
  if (t.raw.function !== "parameter") { body.append(draw(t).box, partly); return; }
  const fold = make("details", {class: "numbers"}, make("summary", {}, drawn === 1 ? "Its number" : "Its numbers"));
  fold.addEventListener("toggle", () => {
    if (!fold.open || fold.children.length > 1) return;
    fold.append(draw(t).box, partly);
    emit("draw");
  });
  body.append(fold);
}

/** @param {Note} note */
function note(note) {
  if (typeof note === "string") return make("p", {}, make("bdi", {}, note));
  if ("drawing" in note) return make("pre", {class: "drawing", tabindex: "0", role: "img", "aria-label": "Drawing: " + note.drawing.join(" ")}, note.drawing.join("\n"));
  const rows = note.rows.length > 24 ? [...note.rows.slice(0, 8), note.header.map(() => "…"), ...note.rows.slice(-4)] : note.rows;
  return make("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": note.header.filter(Boolean).join(", ")}, make("table", {class: "facttable"},
    make("thead", {}, make("tr", {}, ...note.header.map(text => make(text ? "th" : "td", text ? {scope: "col"} : {}, text)))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map(text => make("td", {}, make("bdi", {}, text))))))));
}

/** A table that goes on beyond its edge fades there. */
function atEdge(/** @type {Element[]} */ boxes) {
  const more = boxes.map(box => box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
  for (const [at, box] of boxes.entries()) box.classList.toggle("more", more[at]);
}
const sized = new ResizeObserver(changes => atEdge(changes.map(change => change.target)));
document.addEventListener("scroll", event => { if (event.target instanceof Element && event.target.matches(".scroll")) atEdge([event.target]); }, true);

