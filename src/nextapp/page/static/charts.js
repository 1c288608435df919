// Small SVG charts. Each has a title for screen readers, and its colours come from the style sheet.
import { s, percent, number } from "./dom.js";

// On a narrow screen a chart is drawn at the width of the screen, so that its text keeps its size.
const fit = (wide) => Math.min(wide, Math.max(300, innerWidth - 62));

function frame(width, height, title, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, ...children);
}
const text = (x, y, words, attributes = {}) => s("text", { x, y, ...attributes }, words);
function titled(element, words) { element.append(s("title", {}, words)); return element; }

// Labels at the end of lines, moved apart so that none covers another.
function apart(labels, least, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + least);
  let most = bottom;
  for (let i = labels.length - 1; i >= 0; i--) { labels[i].y = Math.min(labels[i].y, most); most = labels[i].y - least; }
  return labels;
}

export function runningRates(series, names) {
  const width = fit(640), height = 210, left = 36, right = 112, top = 10, bottom = 26;
  const most = Math.max(20, ...Object.values(series).map((points) => points.at(-1)?.[0] ?? 0));
  const x = (n) => left + (n / most) * (width - left - right);
  const y = (rate) => top + (1 - rate) * (height - top - bottom);
  const svg = frame(width, height, "Hit rates so far: " + Object.entries(series).map(([name, points]) => `${names[name]} ${percent(points.at(-1)?.[1] ?? 0)}`).join(", "));
  for (const level of [0, 0.25, 0.5, 0.75, 1]) svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: y(level), y2: y(level) }), text(left - 8, y(level) + 4, `${100 * level}`, { "text-anchor": "end" }));
  svg.append(text(left, height - 6, "0"), text(width - right, height - 6, `${number(most)} launches`, { "text-anchor": "end" }));
  const labels = [];
  for (const [name, points] of Object.entries(series)) {
    if (!points.length) continue;
    const path = points.map(([n, rate], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(rate).toFixed(1)}`).join("");
    svg.append(s("path", { class: `line s-${name} ${name === "nextapp" ? "strong" : ""}`, d: path }));
    labels.push({ name, y: y(points.at(-1)[1]), rate: points.at(-1)[1], x: x(points.at(-1)[0]) });
  }
  for (const label of apart(labels, 16, top, height - bottom)) svg.append(text(width - right + 10, label.y + 4, `${names[label.name]} ${percent(label.rate)}`, { class: `c-${label.name}` }));
  return svg;
}

export function heatMap(apps, rows, most, title) {
  const n = apps.length, cell = 30, left = 82, top = 74, width = left + n * cell + 40, height = top + n * cell;
  const svg = frame(width, height, title);
  const rowNames = apps.map((app, i) => text(left - 8, top + i * cell + cell / 2 + 4, app, { "text-anchor": "end" }));
  const columnNames = apps.map((app, i) => text(0, 0, app, { transform: `translate(${left + i * cell + cell / 2 + 4} ${top - 8}) rotate(-50)` }));
  svg.append(...rowNames, ...columnNames);
  rows.forEach((row, i) => row.forEach((share, j) => {
    const at = { x: left + j * cell + 1, y: top + i * cell + 1, width: cell - 2, height: cell - 2, rx: 4 };
    const group = s("g", {}, s("rect", { ...at, class: "cell-back" }), s("rect", { ...at, class: "cell", "fill-opacity": Math.min(1, Math.sqrt(share / most)).toFixed(3) }));
    titled(group, `${apps[j]} after ${apps[i]}: ${percent(share, 1)}`);
    const light = (on) => () => { rowNames[i].classList.toggle("on", on); columnNames[j].classList.toggle("on", on); };
    group.addEventListener("pointerenter", light(true)); group.addEventListener("pointerleave", light(false));
    svg.append(group);
  }));
  return svg;
}

export function intervals(items, { least = 0, most = 1, title, digits = 0, ticks = 5, row = 40 }) {
  const width = 440, left = 116, right = 62, top = 4, height = top + items.length * row + 22;
  const x = (value) => left + ((value - least) / (most - least)) * (width - left - right);
  const svg = frame(width, height, title + ": " + items.map((item) => `${item.name} ${percent(item.mean, digits)}`).join(", "));
  for (let i = 0; i < ticks; i++) {
    const at = least + (i / (ticks - 1)) * (most - least);
    svg.append(s("line", { class: "axis", x1: x(at), x2: x(at), y1: top, y2: height - 20 }), text(x(at), height - 4, percent(at), { "text-anchor": "middle" }));
  }
  items.forEach((item, i) => {
    const y = top + i * row + row / 2 - 2;
    svg.append(text(0, y + 4, item.name, { class: "name" }));
    svg.append(titled(s("g", {},
      s("line", { class: item.stroke ?? "stroke-accent", x1: x(item.low), x2: x(item.high), y1: y, y2: y, "stroke-width": 8, "stroke-linecap": "round", "stroke-opacity": .28 }),
      s("circle", { class: item.fill ?? "fill-accent", cx: x(item.mean), cy: y, r: 6.5 })), `${item.name}: ${percent(item.mean, 1)} (${percent(item.low, 1)} to ${percent(item.high, 1)})`));
    svg.append(text(width - right + 14, y + 4, percent(item.mean, digits), { class: "value" }));
  });
  return svg;
}

export function gainCurve(points, chosen, open, allPhones) {
  const width = 440, height = 236, left = 34, right = 22, top = 18, bottom = 34;
  const low = Math.min(-0.02, ...points.map((p) => p.low)), high = Math.max(open * 1.25, ...points.map((p) => p.high));
  const first = Math.log10(allPhones[0]), last = Math.log10(allPhones.at(-1));
  const x = (phones) => left + ((Math.log10(phones) - first) / (last - first)) * (width - left - right);
  const y = (gain) => top + ((high - gain) / (high - low)) * (height - top - bottom);
  const svg = frame(width, height, "Gain of a new phone by the number of phones: " + points.map((p) => `${number(p.phones)} ${(100 * p.mean).toFixed(1)} points`).join(", "));
  for (const exponent of [2, 3, 4, 5, 6, 7]) svg.append(s("line", { class: "axis", x1: x(10 ** exponent), x2: x(10 ** exponent), y1: top, y2: height - bottom }), text(x(10 ** exponent), height - 14, ["100", "1,000", "10,000", "100 k", "1 M", "10 M"][exponent - 2], { "text-anchor": "middle" }));
  svg.append(s("line", { class: "zero", x1: left, x2: width - right, y1: y(0), y2: y(0) }), text(left - 8, y(0) + 4, "0", { "text-anchor": "end" }));
  svg.append(s("line", { class: "stroke-muted", x1: left, x2: width - right, y1: y(open), y2: y(open), "stroke-dasharray": "5 5" }), text(left - 8, y(open) + 4, `+${(100 * open).toFixed(0)}`, { "text-anchor": "end" }), text(left + 6, y(open) - 7, "without privacy"));
  const sorted = [...points].sort((a, b) => a.phones - b.phones);
  if (sorted.length > 1) {
    const up = sorted.map((p, i) => `${i ? "L" : "M"}${x(p.phones)} ${y(p.high)}`).join("");
    const down = [...sorted].reverse().map((p) => `L${x(p.phones)} ${y(p.low)}`).join("");
    svg.append(s("path", { class: "fill-soft", d: up + down + "Z" }), s("path", { class: "line stroke-accent strong", d: sorted.map((p, i) => `${i ? "L" : "M"}${x(p.phones)} ${y(p.mean)}`).join("") }));
  }
  for (const p of sorted) svg.append(titled(s("circle", { class: "fill-accent", cx: x(p.phones), cy: y(p.mean), r: p.phones === chosen ? 7 : 3.5 }), `${number(p.phones)} phones: ${(100 * p.mean).toFixed(1)} points (${(100 * p.low).toFixed(1)} to ${(100 * p.high).toFixed(1)})`));
  return svg;
}

export function bars(items, title) {
  const width = 400, row = 29, left = 132, right = 48, most = Math.max(1, ...items.map((item) => item.count));
  const svg = frame(width, items.length * row, title + ": " + items.map((item) => `${item.label} ${item.count}`).join(", "));
  items.forEach((item, i) => {
    const y = i * row, length = (item.count / most) * (width - left - right);
    const label = item.label.length > 17 ? item.label.slice(0, 16) + "…" : item.label;
    svg.append(text(0, y + 19, label, { class: "name" }), titled(s("rect", { class: "fill-accent", x: left, y: y + 7, width: Math.max(2, length), height: 15, rx: 4 }), `${item.app}: ${item.count}`), text(left + length + 8, y + 19, number(item.count)));
  });
  return svg;
}

export function rate(values, title) {
  const width = fit(640), height = 170, left = 44, bottom = 22, top = 10, most = Math.max(1, ...values);
  const svg = frame(width, height, `${title}, now ${values.at(-1)?.toFixed(1) ?? 0}`);
  const x = (i) => left + (i / Math.max(1, values.length - 1)) * (width - left - 6), y = (value) => top + (1 - value / most) * (height - top - bottom);
  for (const level of [0, most / 2, most]) svg.append(s("line", { class: "axis", x1: left, x2: width - 6, y1: y(level), y2: y(level) }), text(left - 8, y(level) + 4, level < 10 ? level.toFixed(1) : number(Math.round(level)), { "text-anchor": "end" }));
  if (values.length > 1) {
    const line = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(s("path", { class: "fill-soft", d: `${line}L${x(values.length - 1)} ${y(0)}L${left} ${y(0)}Z` }), s("path", { class: "line stroke-accent", d: line }));
  }
  svg.append(text(left, height - 4, `${values.length} s ago`), text(width - 6, height - 4, "now", { "text-anchor": "end" }));
  return svg;
}

// The number of equally likely choices (perplexity), by what is known.
export function choices(items, title) {
  const width = 440, row = 52, right = 52, most = Math.max(...items.map((item) => item.value));
  const svg = frame(width, items.length * row, title + ": " + items.map((item) => `${item.name} ${item.value.toFixed(1)}`).join(", "));
  items.forEach((item, i) => {
    const long = (item.value / most) * (width - right);
    svg.append(text(0, i * row + 14, item.name, { class: "name" }), s("rect", { class: "fill-sunk", x: 0, y: i * row + 22, width: width - right, height: 14, rx: 4 }), s("rect", { class: item.fill ?? "fill-muted", x: 0, y: i * row + 22, width: long, height: 14, rx: 4 }), text(width, i * row + 34, item.value.toFixed(item.digits ?? 1), { "text-anchor": "end", class: "value" }));
  });
  return svg;
}

export function columns(values, names, title) {
  const width = 400, height = 190, bottom = 24, most = Math.max(1, ...values), step = width / values.length;
  const svg = frame(width, height, title);
  values.forEach((value, i) => {
    const tall = (value / most) * (height - bottom - 6);
    svg.append(titled(s("rect", { class: "fill-accent", x: i * step + 2, y: height - bottom - tall, width: step - 4, height: Math.max(value ? 1.5 : 0, tall), rx: 3 }), `${names[i]}: ${value}`));
    if (i % 5 === 0 || i === values.length - 1) svg.append(text(i * step + step / 2, height - 6, names[i], { "text-anchor": "middle" }));
  });
  return svg;
}

export function week(hours) {
  const days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], left = 40, cell = (fit(568) - left) / 24, width = left + 24 * cell, height = 7 * cell + 22;
  const most = Math.max(1, ...hours.flat());
  const svg = frame(width, height, "Launches by weekday and hour");
  hours.forEach((row, day) => {
    svg.append(text(0, day * cell + cell / 2 + 4, days[day]));
    row.forEach((count, hour) => {
      const at = { x: left + hour * cell + 1, y: day * cell + 1, width: cell - 2, height: cell - 2, rx: 4 };
      svg.append(titled(s("g", {}, s("rect", { ...at, class: "cell-back" }), s("rect", { ...at, class: "cell", "fill-opacity": Math.sqrt(count / most).toFixed(3) })), `${days[day]} ${hour}:00: ${count}`));
    });
  });
  for (const hour of [0, 6, 12, 18, 23]) svg.append(text(left + hour * cell + cell / 2, height - 4, `${hour}`, { "text-anchor": "middle" }));
  return svg;
}

// Which app follows which: the app before on the left, the app after on the right; a ribbon's width is the count.
export function flow(apps, counts) {
  const width = fit(640), gap = 12, bar = 10, left = width < 500 ? 88 : 140, right = left, n = apps.length;
  const out = counts.map((row) => row.reduce((a, b) => a + b, 0)), into = apps.map((_, j) => counts.reduce((sum, row) => sum + row[j], 0));
  const total = Math.max(1, out.reduce((a, b) => a + b, 0)), height = 360, scale = (height - gap * (n - 1)) / total;
  const svg = frame(width, height, "Which app follows which: " + apps.map((app, i) => { const j = counts[i].indexOf(Math.max(...counts[i])); return `after ${app.label} most often ${apps[j].label}`; }).join("; "));
  const start = (sizes) => { let at = 0; return sizes.map((size) => { const here = at; at += size * scale + gap; return here; }); };
  const from = start(out), to = start(into), used = to.map(() => 0);
  const ribbons = [];
  const show = (which) => { svg.classList.add("flowing"); ribbons.forEach((r) => r.path.classList.toggle("hot", which(r))); };
  const hide = () => { svg.classList.remove("flowing"); ribbons.forEach((r) => r.path.classList.remove("hot")); };
  counts.forEach((row, i) => {
    let at = from[i];
    row.forEach((count, j) => {
      if (!count) return;
      const tall = count * scale, a = left + bar, b = width - right - bar, middle = (a + b) / 2, y0 = at, y1 = to[j] + used[j];
      at += tall; used[j] += tall;
      const path = s("path", { class: "ribbon", d: `M${a} ${y0}C${middle} ${y0} ${middle} ${y1} ${b} ${y1}L${b} ${y1 + tall}C${middle} ${y1 + tall} ${middle} ${y0 + tall} ${a} ${y0 + tall}Z` });
      titled(path, `${apps[j].label} after ${apps[i].label}: ${count} times`);
      ribbons.push({ path, i, j });
      path.addEventListener("pointerenter", () => show((r) => r.path === path)); path.addEventListener("pointerleave", hide);
      svg.append(path);
    });
  });
  const short = (label) => (label.length > left / 8 ? label.slice(0, Math.floor(left / 8) - 1) + "…" : label);
  apps.forEach((app, i) => {
    const before = s("rect", { class: "node", x: left, y: from[i], width: bar, height: Math.max(2, out[i] * scale), rx: 3 });
    const after = s("rect", { class: "node", x: width - right - bar, y: to[i], width: bar, height: Math.max(2, into[i] * scale), rx: 3 });
    before.addEventListener("pointerenter", () => show((r) => r.i === i)); before.addEventListener("pointerleave", hide);
    after.addEventListener("pointerenter", () => show((r) => r.j === i)); after.addEventListener("pointerleave", hide);
    svg.append(before, after, text(left - 10, from[i] + (out[i] * scale) / 2 + 4, short(app.label), { "text-anchor": "end", class: "node-name" }), text(width - right + 10, to[i] + (into[i] * scale) / 2 + 4, short(app.label), { class: "node-name" }));
  });
  return svg;
}
