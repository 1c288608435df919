// The crowd: two sliders, truth and estimate side by side, gain of a new phone.
import { post } from "./api.js";
import { draw, gainCurve, heatMap, intervals, scale } from "./charts.js";
import { $, h, number, percent, speak } from "./dom.js";

let about = null, current = null, wanted = null, running = false;
const known = new Map();

export function start(given) {
  if (about) return;
  about = given;
  $("phones").max = about.phones.length - 1; $("epsilon").max = about.epsilons.length - 1;
  for (const id of ["phones", "epsilon"]) $(id).addEventListener("input", () => { label(); ask(); });
  $("phones").value = about.phones.indexOf(100_000); $("epsilon").value = about.epsilons.indexOf(about.epsilon);
  label(); ask();
}

const chosen = () => ({ phones: about.phones[$("phones").value], epsilon: about.epsilons[$("epsilon").value] });
const key = ({ phones, epsilon }) => `${phones}/${epsilon}`;

function label() {
  const { phones, epsilon } = chosen();
  $("phones-value").textContent = number(phones); $("phones").setAttribute("aria-valuetext", `${number(phones)} phones`);
  $("epsilon-value").textContent = `${epsilon}`; $("epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
}

// One request at a time, so that dragging a slider leaves no queue behind: the last position is asked for next.
function ask() {
  wanted = chosen();
  fade();
  if (!running) run();
}
function fade() { document.querySelectorAll("#room-crowd .heat, #room-crowd .chart").forEach((each) => each.classList.add("stale")); }

async function run() {
  running = true;
  try {
    while (wanted) {
      const want = wanted;
      wanted = null;
      show(await answer(want));
      for (const phones of about.phones) { if (wanted) break; await answer({ ...want, phones }); curve(); }
      if (wanted) fade();
    }
  } catch (error) { $("verdict").textContent = error.message; } finally { running = false; }
}

async function answer(want) {
  if (!known.has(key(want))) known.set(key(want), await post("/api/crowd", want));
  return known.get(key(want));
}

function show(found) {
  current = found;
  document.querySelectorAll("#room-crowd .stale").forEach((each) => each.classList.remove("stale"));
  const most = Math.max(...found.truth.flat());
  const map = (box, rows, title) => draw($(box), heatMap(found.apps, rows, most, title, pick));
  map("truth", found.truth, "Which app follows which: the truth");
  map("estimate", found.estimate, "Which app follows which: the server’s estimate");
  $("scales").replaceChildren(scale("never", `${percent(most)} of the time`));
  pick();
  $("likeness").textContent = found.likeness > 0.3 ? `correlation with the truth: ${percent(found.likeness)}` : "almost only noise";
  const [first, last] = found.launches;
  $("newphones").textContent = `How often the launched app is among five suggestions, for launches ${first} to ${last} of ${found.n_new} new phones.`;
  const all = [found.without, found.private, found.open], least = Math.floor(20 * Math.min(...all.map((each) => each.low))) / 20, top = Math.ceil(20 * Math.max(...all.map((each) => each.high))) / 20;
  draw($("newrates"), intervals([
    { name: "Alone", meaning: "from its own launches only", ...found.without, fill: "fill-muted", stroke: "stroke-muted" },
    { name: "With this crowd", meaning: "by their reports", ...found.private },
    { name: "Without privacy", meaning: "all tell the truth", ...found.open, fill: "fill-muted", stroke: "stroke-muted" }], { least, most: top, digits: 1, title: "Hit rate of new phones", ticks: 4, row: 64 }));
  verdict(found); curve();
}

// A cell of one map lights up in both, and is read out below them.
function pick(i, j) {
  for (const box of ["truth", "estimate"]) $(box).firstElementChild?.light?.(i, j);
  $("picked").textContent = i === undefined ? "Point at a cell, or tap it, to compare it in both maps." : `After ${current.apps[i]}, ${current.apps[j]}: in truth ${percent(current.truth[i][j], 1)}, estimated ${percent(current.estimate[i][j], 1)}.`;
}

function verdict(found) {
  const gain = found.gain, open = found.open_gain.mean, kept = Math.max(0, gain.mean / open);
  const says = gain.low > 0
    ? [h("b", {}, `The crowd helps. `), `A new phone gains ${(100 * gain.mean).toFixed(1)} points in hit rate, ${percent(Math.min(1, kept))} of what it would gain without privacy. `]
    : found.likeness <= 0.3
    ? [h("b", {}, `The crowd does not help yet. `), `The reports are almost only noise, so a new phone starts as if it were alone. More phones or a larger ε would help. `]
    : [h("b", {}, `The crowd does not help yet. `), `The gain of a new phone is not significantly different from zero: ${gain.mean < 0 ? "−" : "+"}${Math.abs(100 * gain.mean).toFixed(1)} points, from ${(100 * gain.low).toFixed(1)} to ${(100 * gain.high).toFixed(1)}. More phones or a larger ε would help. `];
  $("verdict").replaceChildren(h("p", {}, ...says), h("p", {}, ...alone(found)), h("p", { class: "quiet-text" }, found.without_senders));
  speak($("verdict").textContent);
}

// What one report says to someone who reads it beside its sender's name.
function alone({ epsilon, n_bytes }) {
  const odds = Math.exp(epsilon), sure = odds / (1 + odds);
  const much = sure < 0.65 ? "almost nothing" : sure < 0.75 ? "little" : sure < 0.96 ? "much" : "nearly everything";
  return [h("b", {}, `A single report can say ${much} about its phone. `), `Its ${n_bytes} bytes of payload raise the odds of any guess about the owner by at most a factor of ${odds < 10 ? odds.toFixed(1) : number(Math.round(odds))}: from 50 % to ${percent(sure, sure > 0.999 ? 2 : sure > 0.985 ? 1 : 0)}. `,
    epsilon > about.epsilon ? `Phones refuse to send it, unless their owners allow more than ε = ${about.epsilon}.` : `Phones allow this by themselves, up to ε = ${about.epsilon} in a lifetime.`];
}

function curve() {
  if (!current || current.epsilon !== chosen().epsilon) return;
  const points = about.phones.map((phones) => known.get(key({ phones, epsilon: current.epsilon }))).filter(Boolean).map((each) => ({ phones: each.phones, ...each.gain }));
  $("curve").classList.remove("stale");
  draw($("curve"), gainCurve(points, current.phones, current.open_gain.mean, about.phones));
}
