// Requests to the program that serves this page; there are no others.
export async function post(path, body = {}) {
  return answered(await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
}
export async function get(path) { return answered(await fetch(path)); }
export async function upload(path, file) { return answered(await fetch(path, { method: "POST", body: file })); }

async function answered(response) {
  let value = null;
  try { value = await response.json(); } catch { /* not JSON: said below */ }
  if (!response.ok || typeof value?.error === "string") throw new Error(value?.error ?? `The program answered ${response.status}. Open the address that nextapp open printed again.`);
  return value;
}
