// A server on this machine, live by server-sent events.
import { draw, rate } from "./charts.js";
import { $, h, number } from "./dom.js";

const WHY = { bad_token: "not a token", unknown_key: "unknown key", too_large: "too large", bad_report: "not a report", wrong_round: "for another round", wrong_coins: "wrong coins", storage: "disk" };
let source = null;

export function start(about) {
  $("server-how").hidden = about.server !== null;
  if (about.server === null || source) return;
  source = new EventSource("/api/server");
  source.addEventListener("message", (event) => show(JSON.parse(event.data)));
}
export function stop() { source?.close(); source = null; }

function chart(make) { const box = h("div", { class: "chart" }); draw(box, make); return box; }
const fact = (value, words) => h("div", { class: "fact" }, h("b", {}, value), h("span", {}, words));

function show({ server, looks }) {
  const now = looks.at(-1);
  $("server-live").hidden = false;
  if (now.unreachable) {
    $("server-live").replaceChildren(h("article", { class: "card w12" }, h("h2", {}, server), h("p", { class: "alarm", role: "status" }, `The server does not answer: ${now.unreachable}`)));
    return;
  }
  const rates = perSecond(looks), round = now.round, refused = Object.entries(now.refused), dropped = Object.entries(now.dropped);
  const share = round ? Math.min(1, round.reports / Math.max(1, round.goal)) : 0;
  $("server-live").replaceChildren(...[
    h("article", { class: "card w12" },
      h("div", { class: "card-head" }, h("h2", {}, round ? `Round ${number(round.number)}` : "No round yet"), h("p", { class: "quiet-text" }, server)),
      round ? h("div", { class: "bar-track", role: "img", "aria-label": `${round.reports} of ${round.goal} reports` }, h("i", { "width%": 100 * share })) : null,
      round ? h("p", { class: "quiet-text" }, `${number(round.reports)} of ${number(round.goal)} reports; ${round.left > 0 ? `${time(round.left)} left` : `its deadline was ${time(-round.left)} ago`}; with fewer than ${number(round.minimum)} reports it has no effect.`) : null,
      h("div", { class: "facts" }, fact(number(now.accepted), "reports accepted"), fact(rates.length ? rates.at(-1).toFixed(1) : "–", "reports/s now"), fact(now.devices === null ? "–" : number(now.devices), "devices enrolled"), fact(number(now.connections), "connections"), fact(now.slow_seconds === null ? "–" : `${now.slow_seconds < 1 ? `${Math.round(1000 * now.slow_seconds)} ms` : `${now.slow_seconds} s`}`, "95 % of reports within"))),
    h("article", { class: "card w7" }, h("h2", {}, "Reports per second"), chart(rate(rates, "Reports per second"))),
    h("article", { class: "card w5" }, h("h2", {}, "Rounds and the disk"), now.not_ready ? h("p", { class: "alarm", role: "status" }, `Not ready: ${now.not_ready}`) : null,
      h("dl", {}, ...pairs("Rounds completed", now.rounds.stepped), ...pairs("Rounds skipped", now.rounds.passed_over), ...pairs("Rounds that could not be closed", now.rounds.stuck), ...pairs("Extensions of this round", round?.extensions), ...pairs("Reports waiting for the disk", now.waiting), ...pairs("Failed writes", now.storage_errors))),
    now.privacy?.mechanism ? h("article", { class: "card w6" }, h("h2", {}, "What reports cost"), h("dl", {}, h("dt", {}, "mechanism"), h("dd", {}, now.privacy.mechanism), h("dt", {}, "ε per report"), h("dd", {}, `${now.privacy.epsilon}`), ...pairs("reports in total", now.privacy.accounting.reports), ...pairs("ε of a phone that reported in every round", now.privacy.accounting.epsilon_worst_case))) : null,
    h("article", { class: now.privacy?.mechanism ? "card w6" : "card w12" }, h("h2", {}, "Refused"), refused.length + dropped.length
      ? h("dl", {}, ...refused.flatMap(([name, n]) => pairs(`reports: ${WHY[name] ?? name.replaceAll("_", " ")}`, n)), ...dropped.flatMap(([name, n]) => pairs(`connections: ${name.replaceAll("_", " ")}`, n)))
      : h("p", { class: "quiet-text" }, "Nothing was refused."))].filter(Boolean));
}

const pairs = (name, value) => [h("dt", {}, name), h("dd", {}, number(value ?? 0))];
const time = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

// Mean over the last five samples, since reports come in bursts.
function perSecond(looks) {
  const there = looks.filter((look) => !look.unreachable);
  return there.slice(1).map((look, i) => {
    const before = there[Math.max(0, i - 4)];
    return Math.max(0, (look.accepted - before.accepted) / Math.max(0.5, look.at - before.at));
  });
}
