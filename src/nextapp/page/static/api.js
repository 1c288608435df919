// Requests to the program that serves this page; there are no others.
import { $ } from "./dom.js";

export function post(path, body = {}) {
  return answer(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}
export function get(path) { return answer(path); }
export function upload(path, file) { return answer(path, { method: "POST", body: file }); }

async function answer(path, request) {
  let response = null, value = null;
  try { response = await fetch(path, request); } catch { /* said below */ }
  $("ended").hidden = response !== null;
  if (!response) throw new Error("The program has ended.");
  try { value = await response.json(); } catch { /* not JSON: said below */ }
  if (!response.ok || typeof value?.error === "string") throw new Error(value?.error ?? `The program answered ${response.status}. Open the address that nextapp open printed again.`);
  return value;
}
