// Which room is shown, light or dark.
import { get } from "./api.js";
import { $, icon } from "./dom.js";
import * as crowd from "./crowd.js";
import * as log from "./log.js";
import * as phone from "./phone.js";

const ROOMS = ["phone", "crowd", "log"], TITLES = { phone: "Phone", crowd: "Crowd", log: "Your log" };
const dark = matchMedia("(prefers-color-scheme: dark)");
let about = null;

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").replaceChildren(icon(name === "dark" ? "sun" : "moon"));
  $("theme").setAttribute("aria-label", name === "dark" ? "Light colours" : "Dark colours");
}
const kept = () => localStorage.getItem("nextapp-theme");
theme(document.documentElement.dataset.theme);
dark.addEventListener("change", () => { if (!kept()) theme(dark.matches ? "dark" : "light"); });
$("theme").addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("nextapp-theme", name);
  theme(name);
});

function room() {
  const name = location.hash.slice(1);
  return ROOMS.includes(name) ? name : "phone";
}
function enter() {
  const name = room();
  for (const each of ROOMS) $(`room-${each}`).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) { if (link.dataset.room === name) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current"); }
  document.title = `${TITLES[name]} · nextapp`;
  if (name === "phone") phone.start(); else if (name === "crowd") crowd.start(about); else if (name === "log") log.start(about);
}

about = await get("/api/about");
$("version").textContent = about.version;
phone.offer(about);
addEventListener("hashchange", () => { enter(); scrollTo(0, 0); $("rooms").focus({ preventScroll: true }); });
log.takeDrops(about);
if (!location.hash && about.has_log) location.replace("#log");
enter();
