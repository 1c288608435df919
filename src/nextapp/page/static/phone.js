// The phone: taps, suggestions, reasons, playing a log, reports.
import { post } from "./api.js";
import { draw, runningRates } from "./charts.js";
import { $, h, icon, label, number, percent, speak, tile } from "./dom.js";

const NAMES = { nextapp: "nextapp", mru: "MRU", "sr-od": "SR-od" };
const WORDS = { after: "What follows the last apps", frequency: "How often it is used", place: "How recently it was used", since: "Time since its last use", hour: "Time of day", again: "The same app again", lesson: "Learnt from wrong guesses", crowd: "What other phones do", new: "Never used here" };
const BEATS = 40; // launches in the strip
const HINT = "Press Play";
const LONG = 500; // ms of a long press
const WAITING = ["play", "later", "report", "speed"];
const SPEEDS = [1, 2, 5, 10, 25, 100, 400].map((perSecond) => [perSecond, `${perSecond} launches/s`]);

const CHOSEN = "nextapp-person"; // in this tab: the number of a synthetic person, or "log"

let state = null, shown = 0, series = {}, playing = null, queue = Promise.resolve(), waiting = 0, turn = 0, begun = false, timer = null, pressed = false;

export function offer(about) {
  $("whose").append(...Array.from({ length: about.people }, (_, i) => h("option", { value: `${i}` }, `Synthetic person ${i + 1}`)), h("option", { value: "log" }, "Your log"));
  logIsThere(about.has_log);
}
export function logIsThere(there) { $("whose").lastElementChild.disabled = !there; }

export function start() {
  if (begun) return;
  begun = true;
  $("play").addEventListener("click", toggle);
  $("later").addEventListener("click", () => act("/api/phone/wait", { hours: 3 }));
  $("whose").addEventListener("change", () => choose($("whose").value));
  $("report").addEventListener("click", () => act("/api/phone/report"));
  $("speed").addEventListener("input", () => { $("speed-value").textContent = SPEEDS[$("speed").value][1]; if (playing) { stop(); toggle(); } });
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest("#menu")) closeMenu(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeMenu();
    if ($("room-phone").hidden || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const place = "12345".indexOf(event.key);
    if (place >= 0 && state?.suggestions?.[place]) { tap(state.suggestions[place].app); event.preventDefault(); }
  });
  const before = sessionStorage.getItem(CHOSEN) ?? "0";
  choose(before === "log" && $("whose").lastElementChild.disabled ? "0" : before);
}

export async function playLog() {
  start();
  await choose("log");
  if (state && !playing && $("whose").value === "log") toggle();
}

// The log is gone: so is everything that a phone learnt from it.
export function forgetLog() {
  logIsThere(false);
  if (sessionStorage.getItem(CHOSEN) !== "log") return;
  sessionStorage.removeItem(CHOSEN);
  if (begun) choose("0");
}

// Another person's phone. What the last one showed goes at once, and so do its answers that are still to come.
function choose(whose) {
  stop();
  turn++;
  sessionStorage.setItem(CHOSEN, whose);
  $("whose").value = whose;
  clear();
  return act("/api/phone/new", whose === "log" ? { source: "log" } : { number: Number(whose) });
}

function clear() {
  const ghosts = (n) => Array.from({ length: n }, () => h("span", { class: "ghost", "aria-hidden": "true" }, h("span", { class: "tile" }), h("span", { class: "label" }, "\u00a0")));
  state = null; shown = 0; series = { nextapp: [], "sr-od": [], mru: [] };
  $("apps").replaceChildren(...ghosts(20)); $("suggestions").replaceChildren(...ghosts(5).map((each) => h("li", {}, each)));
  $("why").replaceChildren(h("p", { class: "waiting", role: "status" }, "Preparing a phone. The first time this takes about a minute."));
  for (const id of ["strip", "budget", "reports"]) $(id).replaceChildren();
  for (const id of ["status-time", "status-day", "person", "played", "said"]) $(id).textContent = "\u00a0";
  draw($("rates"), runningRates(series, NAMES, HINT));
  for (const id of WAITING) $(id).disabled = true;
  speak("");
}

// One request after the other, so that answers come in order.
function act(path, body = {}) {
  const mine = turn;
  $("room-phone").ariaBusy = ++waiting > 0;
  queue = queue.then(async () => {
    if (mine !== turn) return;
    try {
      const fresh = await post(path, { id: state?.id, ...body });
      if (mine === turn) show(fresh);
    } catch (error) { if (mine === turn) { stop(); $("person").textContent = error.message; } }
  }).finally(() => { $("room-phone").ariaBusy = --waiting > 0; });
  return queue;
}

function tap(app) { shown = 0; return act("/api/phone/tap", { app }); }

function toggle() {
  if (playing) return stop();
  const [perSecond] = SPEEDS[$("speed").value];
  const pause = Math.max(120, 1000 / perSecond), n = Math.min(200, Math.max(1, Math.round((perSecond * pause) / 1000)));
  const step = async () => {
    await act("/api/phone/play", { n });
    if (!state || state.played >= state.to_play) stop();
    if (playing) playing = setTimeout(step, pause);
  };
  playing = setTimeout(step, 0);
  setPlayButton("pause", "Pause");
}
function stop() { if (!playing) return; clearTimeout(playing); playing = null; setPlayButton("play", "Play"); }
function setPlayButton(name, words) { $("play").replaceChildren(icon(name), h("span", {}, words)); }
const sentence = (words) => words.replace(/^./, (letter) => letter.toUpperCase());

function show(fresh) {
  state = fresh;
  for (const id of WAITING) $(id).disabled = id === "report" && state.budget.left <= 0;
  $("status-time").textContent = state.clock.slice(11);
  $("status-day").textContent = new Date(state.clock.slice(0, 10) + "T12:00").toLocaleDateString("en", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
  $("person").textContent = state.synthetic ? `${state.person}: made up, not a real person. ${number(state.n_launches)} launches so far.` : `${state.person}: ${number(state.n_launches)} launches learnt, ${number(state.to_play - state.played)} to play${state.n_older ? `; the ${number(state.n_older)} oldest are left out` : ""}.`;
  showApps(); showSuggestions(); showWhy(); showPlaying(); showLeft();
  if (!playing) speak("Suggestions: " + state.suggestions.map((each) => `${each.label} ${percent(each.share)}`).join(", "));
}

function keepFocus(container, draw) {
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  draw();
  if (focused) [...container.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
}

function showApps() {
  keepFocus($("apps"), () => $("apps").replaceChildren(...state.apps.slice(0, 20).map((app) =>
    h("button", { type: "button", class: `app ${app.app === state.last ? "is-last" : ""}`, "data-key": app.app, "data-app": app.app, title: app.app, onclick: () => tap(app.app) }, tile(app), label(app)))));
}

function showSuggestions() {
  keepFocus($("suggestions"), () => $("suggestions").replaceChildren(...state.suggestions.map((each, place) =>
    h("li", {}, h("button", {
      type: "button", class: `app ${place === shown ? "is-shown" : ""}`, "data-key": `place-${place}`, "data-app": each.app, "data-share": each.share, "aria-keyshortcuts": `${place + 1}`,
      title: `${each.app}: key ${place + 1}`,
      onclick: () => { if (!pressed) tap(each.app); }, onpointerenter: () => look(place), onfocus: () => look(place),
      onpointerdown: () => { pressed = false; timer = setTimeout(() => openMenu(place), LONG); }, onpointerup: release, onpointerleave: release, onpointercancel: release,
      oncontextmenu: (event) => { event.preventDefault(); openMenu(place); },
    }, tile(each), label(each), " ", h("span", { class: "chance" }, percent(each.share)), h("span", { class: "meter", "aria-hidden": "true" }, h("i", { "width%": Math.max(4, 100 * each.share) })))))));
}

function look(place) {
  if (place === shown) return;
  shown = place;
  [...$("suggestions").querySelectorAll(".app")].forEach((each, i) => each.classList.toggle("is-shown", i === shown));
  showWhy();
}

// A long press on a suggestion, or the menu key: leave it out.
function openMenu(place) {
  const each = state?.suggestions[place];
  if (!each) return;
  release();
  pressed = true;
  look(place);
  $("menu").setAttribute("aria-label", each.label);
  $("menu").replaceChildren(h("span", { class: "label" }, each.label), ...choices(each.app));
  $("menu").hidden = false;
  $("menu").querySelector("button").focus();
}
function release() { clearTimeout(timer); }
function closeMenu() {
  if ($("menu").hidden) return;
  const back = $("menu").contains(document.activeElement);
  $("menu").hidden = true;
  if (back) $("suggestions").querySelector(".is-shown")?.focus();
}

function choices(app) {
  const choice = (name, words, hours) => h("button", { type: "button", "data-key": name, onclick: () => { closeMenu(); leaveOut(app, hours); } }, words);
  return [choice("not-today", "Not for a day", 24), choice("hide", "Hide", null)];
}

function leaveOut(app, hours) { return act("/api/phone/leave-out", { app, hours }); }

// Apps that are not suggested, each a button that takes this back.
function leftOut() {
  if (!state.left_out.length) return [];
  return [h("div", { class: "left-out" }, h("span", { class: "quiet-text" }, "Suggest again:"), ...state.left_out.map((each) =>
    h("button", { type: "button", "data-key": `again-${each.app}`, title: each.app, onclick: () => leaveOut(each.app, 0) }, each.label)))];
}

function showWhy() { keepFocus($("why"), drawWhy); }

function drawWhy() {
  const each = state.suggestions[Math.min(shown, state.suggestions.length - 1)];
  if (!each) { $("why").replaceChildren(h("p", { class: "quiet-text" }, "No other app to suggest yet."), ...leftOut()); return; }
  const most = Math.max(0.7, ...each.parts.map((part) => Math.abs(part.part)));
  $("why").replaceChildren(
    h("div", { class: "why-head" }, tile(each), h("div", {}, h("p", { class: "why-name" }, each.label), h("p", { class: "quiet-text" }, `suggestion ${shown + 1} of ${state.suggestions.length}`)), h("p", { class: "why-share" }, percent(each.share))),
    h("p", { class: "why-words" }, sentence(each.words.replace(/ \([+−-][\d.]+\)/g, ""))),
    h("div", { class: "part part-head", "aria-hidden": "true" }, h("span", {}), h("span", { class: "sides" }, h("span", {}, "← less likely"), h("span", {}, "more likely →")), h("span", {})),
    h("div", { class: "parts", role: "list", "aria-label": "Reasons for it and against it" }, ...each.parts.map((part) => {
      const wide = (50 * Math.abs(part.part)) / most, times = Math.exp(Math.abs(part.part)), sign = part.part < 0 ? "÷" : "×";
      return h("div", { class: "part", role: "listitem" }, h("span", {}, WORDS[part.name] ?? part.name),
        h("span", { class: "track", "aria-hidden": "true" }, h("i", { class: part.part < 0 ? "against" : "", "width%": wide, "left%": part.part < 0 ? 50 - wide : 50 })),
        h("span", { class: "number" }, `${sign} ${times < 10 ? times.toFixed(1) : Math.round(times)}`));
    })),
    h("p", { class: "note" }, "× 2 makes it twice as likely as the average app on this phone, ÷ 2 half as likely. Point at another suggestion to see its reasons, press it long to hide it. The open app is not suggested."),
    h("div", { class: "left-out" }, ...choices(each.app)),
    ...leftOut());
}

function showPlaying() {
  $("played").textContent = `${number(state.played)} of ${number(state.to_play)} launches played`;
  const n = state.rates.nextapp.n;
  for (const [name, points] of Object.entries(series)) {
    if (!n || points.at(-1)?.[0] === n) continue;
    points.push([n, state.rates[name].at_5]);
    if (points.length > 400) series[name] = points.filter((_, i) => i % 2 === 0 || i === points.length - 1);
  }
  draw($("rates"), runningRates(series, NAMES, HINT));
  const hits = state.events.map((event) => h("span", { class: `beat ${event.place >= 1 && event.place <= 5 ? "" : "miss"}`, title: `${event.clock.slice(11)} ${event.app}: ${event.place ? `place ${event.place}` : "new here"}` },
    event.place >= 1 && event.place <= 5 ? h("i", { "height%": 120 - 20 * event.place }) : null));
  const empty = Array.from({ length: Math.max(0, BEATS - hits.length) }, () => h("span", { class: "beat", "aria-hidden": "true" }));
  $("strip").replaceChildren(...hits, ...empty);
  $("strip").setAttribute("aria-label", `${state.events.filter((event) => event.place >= 1 && event.place <= 5).length} of the last ${hits.length} launches were among the five suggestions`);
}

function showLeft() {
  const { budget, reports } = state;
  $("budget").replaceChildren(
    h("p", { class: "big" }, `ε ${trim(budget.left)}`), h("p", { class: "quiet-text" }, `left of ${trim(budget.lifetime)} for this phone’s lifetime`),
    h("div", { class: "bar-track", role: "img", "aria-label": `${percent(budget.spent / budget.lifetime)} of the budget is spent` }, h("i", { "width%": (100 * budget.spent) / budget.lifetime })),
    h("p", { class: "quiet-text" }, budget.left > 0 ? `Today it may still spend ${trim(budget.left_today)}.` : "All of it is spent: this phone sends no more reports."),
    h("p", { class: "note" }, `ε bounds what all reports of a lifetime give away together. With ${trim(budget.lifetime)}, one report, the odds of any guess about this person rise at most ${Math.exp(budget.lifetime).toFixed(1)} times; with 10 it would be 22,000 times. More than ${trim(budget.lifetime)} is the owner’s choice.`));
  $("said").textContent = sentence(state.said);
  $("nothing").hidden = reports.length > 0;
  $("reports").replaceChildren(...reports.map((report) => {
    const all = report.hex.split(" "), marked = report.payload.split(" ").length - report.n_public, from = all.length - marked - 4, most = report.odds / (1 + report.odds);
    return h("li", {},
      h("p", { class: "report-head" }, h("b", {}, report.clock), ` · ${report.n_bytes} bytes, ${report.payload.split(" ").length} of them payload · ε = ${trim(report.epsilon)}`),
      h("p", { class: "bytes" }, all.slice(0, from).join(" ") + " ", h("b", {}, all.slice(from, from + marked).join(" ")), " " + all.slice(from + marked).join(" ")),
      h("p", { class: "quiet-text" }, `Only the marked ${marked === 1 ? "byte depends" : `${marked} bytes depend`} on the launches. The others name the round and the mechanism, hold ${report.n_public} random bytes that stand for a few patterns of transitions, and end with a checksum. The marked ${marked === 1 ? "byte picks" : "bytes pick"} one of these patterns. It speaks for ${number(report.speaks_for)} of ${number(report.of)} possible transitions, such as “${report.examples.join("”, “")}”, against all others, and may be pure chance.`),
      h("div", { class: "odds" },
        h("span", {}, "A guess about this person before"), h("span", { class: "track", "aria-hidden": "true" }, h("i", { "width%": 50 })), h("b", {}, "50 %"),
        h("span", {}, "after this report, at most"), h("span", { class: "track", "aria-hidden": "true" }, h("i", { class: "after", "width%": 100 * most })), h("b", {}, percent(most))),
      h("p", { class: "quiet-text" }, `It raises the odds of any guess by at most a factor of ${report.odds.toFixed(2)} (e`, h("sup", {}, "ε"), ")."));
  }));
}
const trim = (value) => String(Number(value.toFixed(3)));
