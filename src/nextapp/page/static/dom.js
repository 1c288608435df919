// Builds elements without HTML in strings, so that text is never parsed as markup.
const SVG = "http://www.w3.org/2000/svg";
export const $ = (id) => document.getElementById(id);

export function h(tag, attributes = {}, ...children) { return filled(document.createElement(tag), attributes, children); }
export function s(tag, attributes = {}, ...children) { return filled(document.createElementNS(SVG, tag), attributes, children); }

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width%") element.style.width = `${value}%`;
    else if (name === "height%") element.style.height = `${value}%`;
    else if (name === "left%") element.style.left = `${value}%`;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name, size = "i") { return s("svg", { class: size, "aria-hidden": "true" }, s("use", { href: `/static/icons.svg#${name}` })); }

export function tile(app) {
  const tint = [...app.app].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) >>> 0, 7) % 8;
  const inside = app.icon ? icon(app.icon) : h("span", { class: "letters" }, app.label.match(/\d{1,2}$/)?.[0] ?? [...app.label].slice(0, 2).join(""));
  return h("span", { class: `tile tint-${tint}`, "aria-hidden": "true" }, inside);
}

// The name of an app in little room: a number at its end is never cut off.
export function label(app) {
  const [, name, last] = app.label.match(/^(.*?)(\d{0,4})$/s);
  return h("span", { class: "label" }, ...(last ? [h("span", {}, name), last] : [name]));
}

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
export const number = (value) => value.toLocaleString("en");
export function speak(words) { $("spoken").textContent = words; }
