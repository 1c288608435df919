// Your own log: drop a file, look at it, forget it.
import { get, post, upload } from "./api.js";
import { bars, choices as choiceBars, columns, draw, flow, intervals, scale, week } from "./charts.js";
import { $, h, icon, number, percent, speak, tile } from "./dom.js";
import { forgetLog, logIsThere, playLog } from "./phone.js";

const MODELS = { nextapp: "nextapp", mru: "MRU", mfu: "MFU", "sr-od": "SR-od" };
let begun = false, most = 64 << 20;

export async function start(about) {
  if (begun) return;
  begun = true;
  most = about.most_bytes;
  $("zone").placeholder = Intl.DateTimeFormat().resolvedOptions().timeZone || "this machine’s";
  $("zones").replaceChildren(...(Intl.supportedValuesOf?.("timeZone") ?? []).map((zone) => h("option", { value: zone })));
  $("file").addEventListener("change", () => { take($("file").files[0]); $("file").value = ""; });
  $("example").addEventListener("click", () => busy(async () => show(await post("/api/log/example"))));
  if (about.has_log) await busy(async () => show(await get("/api/log")));
}

// A file may be dropped anywhere: without this, a browser would leave the page and open the file.
export function takeDrops(about) {
  const holdsFile = (event) => event.dataTransfer?.types.includes("Files");
  for (const name of ["dragenter", "dragover"]) document.addEventListener(name, (event) => { if (holdsFile(event)) { event.preventDefault(); $("drop").classList.add("over"); } });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").classList.remove("over"); });
  document.addEventListener("drop", async (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    $("drop").classList.remove("over");
    const file = event.dataTransfer.files[0];
    location.hash = "log";
    await start({ ...about, has_log: false });
    take(file);
  });
}

async function take(file, first = null) {
  if (!file) return;
  if (file.size > most) return fail(new Error(`A file may have up to ${most >> 20} MiB here; nextapp data convert reads larger ones.`));
  await busy(async () => {
    const query = new URLSearchParams({ name: file.name });
    if ($("zone").value.trim()) query.set("zone", $("zone").value.trim());
    if (first) query.set("first", first);
    show(await upload(`/api/log?${query}`, file));
  }, [["Day first: 3/4 is 3 April", () => take(file, "day")], ["Month first: 3/4 is 4 March", () => take(file, "month")]]);
}

// Where nothing in the file tells the order of day and month, `orders` are the two buttons that ask for it.
async function busy(work, orders = []) {
  $("log-error").hidden = true; $("log-busy").hidden = false; $("example").disabled = true;
  try { await work(); } catch (error) { fail(error, orders); } finally { $("log-busy").hidden = true; $("example").disabled = false; }
}
function fail(error, orders = []) {
  const [what, formats] = error.message.split(" Looked for: "), [words, ask] = what.split(" Say it: --dates");
  const buttons = ask ? orders.map(([name, onclick]) => h("button", { type: "button", onclick }, name)) : [];
  $("log-error").replaceChildren(h("p", {}, formats ? `${words} Looked for:` : words), h("div", { class: "row-actions", hidden: !buttons.length }, ...buttons), ...(formats ? [h("ul", { class: "notes" }, ...formats.split("; ").map((each) => h("li", {}, each)))] : []));
  $("log-error").hidden = false;
}

const tabs = new BroadcastChannel("nextapp"); // other tabs show the same log
tabs.addEventListener("message", clear);

async function forget() {
  await post("/api/log/forget");
  tabs.postMessage("forgotten");
  clear();
}

function clear() {
  forgetLog();
  $("portrait").replaceChildren(); $("portrait").hidden = true;
  $("room-log").classList.remove("has-log");
  speak("The log is forgotten.");
}

// A chart in a box of its own, drawn once the box has a width.
function chart(make) { const box = h("div", { class: "chart" }); draw(box, make); return box; }
const count = (n, one, many) => fact(number(n), n === 1 ? one : many);
const fact = (value, words) => h("div", { class: "fact" }, h("b", {}, value), h("span", {}, words));

function show(found) {
  if (!found) return;
  logIsThere(true);
  const cards = [
    h("article", { class: "card w12" },
      h("div", { class: "card-head" }, h("h2", {}, found.name || "Your log"), h("p", { class: "quiet-text" }, `${found.format} · ${found.first} to ${found.last}`)),
      h("div", { class: "facts" }, count(found.n_launches, "launch", "launches"), count(found.n_apps, "app", "apps"), count(found.n_days, "day with launches", "days with launches"), count(found.sessions.n, "session", "sessions"), fact(found.sessions.median.toLocaleString("en"), "launches in a median session")),
      found.notes.length ? h("ul", { class: "notes" }, ...found.notes.map((note) => h("li", {}, note))) : null,
      h("div", { class: "row-actions" },
        h("button", { type: "button", class: "primary", id: "play-mine", onclick: () => { location.hash = "phone"; playLog(); } }, icon("play"), h("span", {}, "Play it on the phone")),
        h("button", { type: "button", id: "forget", onclick: () => busy(forget) }, icon("trash-2"), h("span", {}, "Forget it")),
        found.users.length > 1 ? people(found) : null)),
    h("article", { class: "card w5" }, h("h2", {}, "Most used"), h("p", { class: "quiet-text" }, "Launches per app. What is no app here can be left out: ", h("code", {}, "nextapp data convert --leave-out"), "."), chart(bars(found.apps, "Most used apps"))),
    h("article", { class: "card w7" }, h("h2", {}, "Which app follows which"), ...(found.flow.counts.flat().some((n) => n > 0)
      ? [h("p", { class: "quiet-text" }, `The app before on the left, the app after on the right, among the ${found.flow.apps.length} most used. Strong: what follows most often. Point at an app to see only its own.`), chart(flow(found.flow.apps, found.flow.counts))]
      : [h("p", { class: "quiet-text" }, "Nothing yet: all launches are of one app.")])),
    ...(found.measured ? measuredCards(found) : [h("article", { class: "card w12" }, h("h2", {}, "Too few launches to measure"), h("p", { class: "quiet-text" }, "Twenty are needed."))]),
    h("article", { class: "card w7" }, h("div", { class: "card-head" }, h("div", {}, h("h2", {}, "Your week"), h("p", { class: "quiet-text" }, `Launches by weekday and hour, ${found.clock}.`)), scale("none", `${number(Math.max(...found.hours.flat()))} launches`)), chart(week(found.hours))),
    h("article", { class: "card w5" }, h("h2", {}, "Sessions"), h("p", { class: "quiet-text" }, "How many sessions had how many launches. A session ends after 15 minutes without a launch."), chart(columns(found.sessions.sizes, found.sessions.sizes.map((_, i) => (i === 20 ? "21+" : `${i + 1}`)), "Sessions by number of launches", "launches in a session"))),
  ];
  $("portrait").replaceChildren(h("div", { class: "portrait" }, ...cards));
  $("portrait").hidden = false;
  $("room-log").classList.add("has-log");
  speak(`${found.format}: ${found.n_launches} launches of ${found.n_apps} apps.`);
}

function people({ user, users }) {
  const select = h("select", { id: "user" }, ...users.map((each) => h("option", { selected: each === user }, each)));
  select.addEventListener("change", () => busy(async () => show(await post("/api/log/user", { user: select.value }))));
  return h("label", { class: "quiet-text" }, "Whose launches ", select);
}

function measuredCards(found) {
  const { measured } = found;
  const best = measured.models[measured.best], ahead = measured.ahead, choices = measured.choices;
  const sure = ahead.low > 0, level = Object.entries(measured.models).filter(([, each]) => best.at_5.mean - each.at_5.mean < 1e-9).map(([name]) => MODELS[name]);
  return [
    h("article", { class: "card w6" }, h("h2", {}, "How predictable you are"),
      h("p", { class: "sentence" }, `In your last ${number(measured.n)} launches you used `, h("b", {}, found.n_apps === 1 ? "your only app" : `${choices.apps < found.n_apps ? `${choices.apps} of` : "all"} your ${found.n_apps} apps`), ...(choices.by_frequency < 0.95 * choices.apps ? [", but not evenly: it is as if you chose among ", h("b", {}, choices.by_frequency.toFixed(1))] : [" about equally often"]), ". ", ...(choices.by_nextapp < choices.by_frequency ? ["Knowing your habits, nextapp sees a choice among ", h("b", {}, choices.by_nextapp.toFixed(1)), "."] : ["Your habits say no more than that."])),
      h("div", { class: "facts" }, fact(percent(measured.models.nextapp.at_1.mean), "first suggestion is right"), fact(percent(measured.models.nextapp.at_5.mean), "among five suggestions")),
      chart(choiceBars([{ name: "Apps in these launches", value: choices.apps, digits: 0 }, { name: "… knowing how often you use each", value: choices.by_frequency }, { name: "… knowing your habits", value: choices.by_nextapp, fill: "fill-accent" }], "Choices left")),
      h("p", { class: "note" }, "Perplexity (two to the power of the entropy in bits): of how often each app is used, and of nextapp’s predictions for launches that it had not seen.")),
    h("article", { class: "card w6" }, h("h2", {}, "Which model predicts you best"),
      h("p", { class: "sentence" }, ...(level.length > 1
        ? [h("b", {}, "This log cannot say"), `: ${level.slice(0, -1).join(", ")} and ${level.at(-1)} are level. The app was among the five suggestions of each in ${percent(best.at_5.mean)} of ${number(measured.n)} launches.`]
        : [h("b", {}, MODELS[measured.best]), `: the app was among its five suggestions in ${percent(best.at_5.mean)} of ${number(measured.n)} launches. `, sure ? `${MODELS[measured.second]} is behind by ${(100 * ahead.mean).toFixed(1)} points (${(100 * ahead.low).toFixed(1)} to ${(100 * ahead.high).toFixed(1)}).` : `The difference to ${MODELS[measured.second]} (${(100 * ahead.mean).toFixed(1)} points, ${(100 * ahead.low).toFixed(1)} to ${(100 * ahead.high).toFixed(1)}) is not significant.`])),
      chart(intervals(Object.entries(measured.models).map(([name, each]) => ({ name: MODELS[name], meaning: each.meaning, ...each.at_5, fill: `f-${name}`, stroke: `s-${name}` })), { title: "Hit rate among five by model" })),
      h("p", { class: "note" }, `Each of your last ${number(measured.n)} launches is predicted before it is seen; all models keep learning. Bands: 95 % intervals over ${measured.n_days} ${measured.n_days === 1 ? "day, so they mean little" : "days"}.`)),
    h("article", { class: "card w12" }, h("h2", {}, "The last predictions"),
      h("p", { class: "quiet-text" }, "Oldest first. The number is the rank that nextapp gave to the app that you launched."),
      h("ol", { class: "lately" }, ...measured.lately.map((each) => {
        const hit = each.place >= 1 && each.place <= 5;
        return h("li", { class: hit ? "hit" : "miss", title: `${each.clock} ${each.app}` }, tile(each), h("span", {}, each.label), hit ? h("b", {}, `${each.place}`) : h("span", {}, each.place ? `${each.place}` : "new", h("span", { class: "sr" }, ", missed")));
      }))),
  ];
}
