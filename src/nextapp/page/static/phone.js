// The phone: taps, suggestions, reasons, playing a log, reports.
import { post } from "./api.js";
import { runningRates } from "./charts.js";
import { $, h, icon, number, percent, speak, tile } from "./dom.js";

const NAMES = { nextapp: "nextapp", mru: "MRU", "sr-od": "SR-od", seqmf: "SeqMF" };
const WORDS = { after: "came after the last apps", frequency: "how often it is used", place: "how recently it was used", since: "time since its last use", hour: "time of day", again: "the same app again", lesson: "learnt from past mistakes", crowd: "what other phones do", new: "never used here" };
const SPEEDS = [1, 2, 5, 10, 25, 100, 400].map((perSecond) => [perSecond, `${perSecond} launches/s`]);

let state = null, shown = 0, series = {}, playing = null, busy = Promise.resolve(), person = 0;

// The first caller creates the phone, which can take a minute; later callers wait for the same one.
let starting = null;
export function start() { return (starting ??= begin()); }

async function begin() {
  $("play").addEventListener("click", toggle);
  $("later").addEventListener("click", () => act("/api/phone/wait", { hours: 3 }));
  $("another").addEventListener("click", () => { stop(); renew({ source: "synthetic", number: ++person }); });
  $("mine").addEventListener("click", playLog);
  $("report").addEventListener("click", () => act("/api/phone/report"));
  $("speed").addEventListener("input", () => { $("speed-value").textContent = SPEEDS[$("speed").value][1]; if (playing) { stop(); toggle(); } });
  document.addEventListener("keydown", (event) => {
    if ($("room-phone").hidden || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const place = "12345".indexOf(event.key);
    if (place >= 0 && state?.suggestions?.[place]) { tap(state.suggestions[place].app); event.preventDefault(); }
  });
  await renew({ source: "synthetic", number: person });
}

export async function playLog() { await start(); stop(); await renew({ source: "log" }); }
export function logIsThere(there) { $("mine").hidden = !there; }

async function renew(body) {
  try {
    const fresh = await post("/api/phone/new", body);
    series = { nextapp: [], "sr-od": [], mru: [], seqmf: [] };
    shown = 0;
    show(fresh);
  } catch (error) { $("person").textContent = error.message; }
}

// One request after the other, so that answers come in order.
function act(path, body = {}) {
  busy = busy.then(async () => {
    await start();
    try { show(await post(path, { id: state.id, ...body })); } catch (error) { stop(); $("said").textContent = error.message; }
  });
  return busy;
}

function tap(app) { shown = 0; return act("/api/phone/tap", { app }); }

function toggle() {
  if (playing) return stop();
  const [perSecond] = SPEEDS[$("speed").value];
  const pause = Math.max(120, 1000 / perSecond), n = Math.min(200, Math.max(1, Math.round((perSecond * pause) / 1000)));
  const step = async () => {
    await act("/api/phone/play", { n });
    if (state.played >= state.to_play) stop();
    if (playing) playing = setTimeout(step, pause);
  };
  playing = setTimeout(step, 0);
  setPlayButton("pause", "Pause");
}
function stop() { clearTimeout(playing); playing = null; setPlayButton("play", "Play"); }
function setPlayButton(name, words) { $("play").replaceChildren(icon(name), h("span", {}, words)); }

function show(fresh) {
  state = fresh;
  $("status-time").textContent = state.clock.slice(11);
  $("status-day").textContent = `${state.weekday}, ${new Date(state.clock.slice(0, 10) + "T12:00").toLocaleDateString("en", { day: "numeric", month: "long", year: "numeric" })}`;
  $("person").textContent = state.synthetic ? `${state.person}, who does not exist. ${number(state.n_launches)} launches so far.` : `${state.person}: your own launches, ${number(state.n_launches)} learnt.`;
  showApps(); showSuggestions(); showWhy(); showPlaying(); showLeft();
  speak("Suggestions: " + state.suggestions.map((each) => `${each.label} ${percent(each.share)}`).join(", "));
}

function keepFocus(container, draw) {
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  draw();
  if (focused) [...container.querySelectorAll("[data-key]")].find((each) => each.dataset.key === focused)?.focus();
}

function showApps() {
  keepFocus($("apps"), () => $("apps").replaceChildren(...state.apps.slice(0, 20).map((app) =>
    h("button", { type: "button", class: `app ${app.app === state.last ? "is-last" : ""}`, "data-key": app.app, "data-app": app.app, title: app.app, onclick: () => tap(app.app) }, tile(app), h("span", { class: "label" }, app.label)))));
}

function showSuggestions() {
  const most = Math.max(...state.suggestions.map((each) => each.share), 0.01);
  keepFocus($("suggestions"), () => $("suggestions").replaceChildren(...state.suggestions.map((each, place) =>
    h("li", {}, h("button", {
      type: "button", class: `app ${place === shown ? "is-shown" : ""}`, "data-key": `place-${place}`, "data-app": each.app, "data-share": each.share, "aria-keyshortcuts": `${place + 1}`,
      "aria-label": `${each.label}, ${percent(each.share)}`, title: `${each.app}: key ${place + 1}`,
      onclick: () => tap(each.app), onpointerenter: () => look(place), onfocus: () => look(place),
    }, tile(each), h("span", { class: "label" }, each.label), h("span", { class: "chance" }, percent(each.share)), h("span", { class: "meter", "aria-hidden": "true" }, h("i", { "width%": (100 * each.share) / most })))))));
}

function look(place) {
  if (place === shown) return;
  shown = place;
  [...$("suggestions").querySelectorAll(".app")].forEach((each, i) => each.classList.toggle("is-shown", i === shown));
  showWhy();
}

function showWhy() {
  const each = state.suggestions[Math.min(shown, state.suggestions.length - 1)];
  if (!each) { $("why").replaceChildren(h("p", { class: "quiet-text" }, "No launches yet.")); return; }
  const most = Math.max(0.5, ...each.parts.map((part) => Math.abs(part.part)));
  $("why").replaceChildren(
    h("div", { class: "why-head" }, tile(each), h("div", {}, h("p", { class: "why-name" }, each.label), h("p", { class: "quiet-text" }, `suggestion ${shown + 1} of 5`)), h("p", { class: "why-share" }, percent(each.share))),
    h("p", { class: "why-words" }, each.words.replace(/ \([+−-][\d.]+\)/g, "").replace(/^./, (letter) => letter.toUpperCase())),
    h("div", { class: "parts", role: "list", "aria-label": "Reasons for it and against it" }, ...each.parts.map((part) => {
      const wide = (50 * Math.abs(part.part)) / most;
      return h("div", { class: "part", role: "listitem" }, h("span", {}, WORDS[part.name] ?? part.name),
        h("span", { class: "track", "aria-hidden": "true" }, h("i", { class: part.part < 0 ? "against" : "", "width%": wide, "left%": part.part < 0 ? 50 - wide : 50 })),
        h("span", { class: "number" }, `${part.part < 0 ? "−" : "+"}${Math.abs(part.part).toFixed(2)}`));
    })));
}

function showPlaying() {
  $("played").textContent = `${number(state.played)} of ${number(state.to_play)} launches played`;
  const n = state.rates.nextapp.n;
  for (const [name, points] of Object.entries(series)) {
    if (!n || points.at(-1)?.[0] === n) continue;
    points.push([n, state.rates[name].at_5]);
    if (points.length > 400) series[name] = points.filter((_, i) => i % 2 === 0 || i === points.length - 1);
  }
  $("rates").replaceChildren(runningRates(series, NAMES));
  $("rates").hidden = $("rates-note").hidden = !n;
  const hits = state.events.map((event) => h("span", { class: `beat ${event.place >= 1 && event.place <= 5 ? "" : "miss"}`, title: `${event.clock.slice(11)} ${event.app}: ${event.place ? `place ${event.place}` : "new here"}` },
    event.place >= 1 && event.place <= 5 ? h("i", { "height%": 120 - 20 * event.place }) : null));
  $("strip").replaceChildren(...hits);
  $("strip").hidden = !hits.length;
}

function showLeft() {
  const { budget, reports } = state;
  $("budget").replaceChildren(
    h("p", { class: "big" }, `ε ${trim(budget.left)}`), h("p", { class: "quiet-text" }, `left of ${trim(budget.lifetime)} for this phone’s lifetime`),
    h("div", { class: "bar-track", role: "img", "aria-label": `${percent(budget.spent / budget.lifetime)} of the budget is spent` }, h("i", { "width%": (100 * budget.spent) / budget.lifetime })),
    h("p", { class: "quiet-text" }, budget.left_today > 0 ? `Today it may still spend ${trim(budget.left_today)}.` : "Today’s share is spent. Let time pass to send another."));
  $("said").textContent = state.said;
  $("nothing").hidden = reports.length > 0;
  $("reports").replaceChildren(...reports.map((report) => {
    const all = report.hex.split(" "), payload = report.payload.split(" ").length, from = all.length - payload - 4;
    return h("li", {},
      h("p", {}, `${report.clock} · ${report.n_bytes} bytes, of which ${payload} depend on you`),
      h("p", { class: "bytes" }, all.slice(0, from).join(" ") + " ", h("b", {}, all.slice(from, from + payload).join(" ")), " " + all.slice(from + payload).join(" ")),
      h("p", { class: "quiet-text" }, `It fits ${number(report.speaks_for)} of ${number(report.of)} possible values equally well, such as “${report.examples.join("”, “")}”, and it may be pure chance. Whoever sees it can raise the odds of any guess about you by at most a factor of ${report.odds.toFixed(2)} (e`, h("sup", {}, "ε"), `, ε = ${trim(report.epsilon)}).`));
  }));
}
const trim = (value) => String(Number(value.toFixed(3)));
