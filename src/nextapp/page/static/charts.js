// Small SVG charts. Each has a title for screen readers, and its colours come from the style sheet.
import { h, s, percent, number } from "./dom.js";

// A chart is drawn at the width of its box, so that its text has the same size everywhere, and again when the box changes.
const drawn = new WeakMap();
const watched = new ResizeObserver((entries) => { for (const { target } of entries) paint(target); });
export function draw(box, make) {
  drawn.set(box, { make, width: 0 });
  watched.observe(box);
  paint(box);
}
function paint(box) {
  const chart = drawn.get(box), width = Math.floor(box.clientWidth);
  if (!chart || !width || width === chart.width) return;
  chart.width = width;
  box.replaceChildren(chart.make(width));
}

function frame(width, height, title, ...children) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title }, ...children);
}
const text = (x, y, words, attributes = {}) => s("text", { x, y, ...attributes }, words);
function titled(element, words) { element.append(s("title", {}, words)); return element; }
// As much of a label as fits this many pixels, at the size of names in charts: its two ends.
const pen = document.createElement("canvas").getContext("2d");
pen.font = '14px "Inter", ui-sans-serif, system-ui, sans-serif';
function cut(label, pixels) {
  if (pen.measureText(label).width <= pixels) return label;
  const letters = [...label], kept = (n) => letters.slice(0, Math.floor(n / 2)).join("") + "…" + letters.slice(letters.length - Math.ceil(n / 2)).join("");
  let n = letters.length - 1;
  while (n > 1 && pen.measureText(kept(n)).width > pixels) n--;
  return kept(n);
}
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Round values for an axis from 0, at most five.
function steps(most) {
  const raw = most / 4, power = 10 ** Math.floor(Math.log10(raw)), step = Math.max(1, [1, 2, 5, 10].find((each) => each * power >= raw) * power);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

// Labels at the end of lines, moved apart so that none covers another.
function apart(labels, least, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + least);
  let most = bottom;
  for (let i = labels.length - 1; i >= 0; i--) { labels[i].y = Math.min(labels[i].y, most); most = labels[i].y - least; }
  return labels;
}

export const runningRates = (series, names, hint) => (width) => {
  const height = 216, left = 44, right = 108, top = 12, bottom = 28;
  const most = Math.max(20, ...Object.values(series).map((points) => points.at(-1)?.[0] ?? 0));
  const x = (n) => left + (n / most) * (width - left - right), y = (rate) => top + (1 - rate) * (height - top - bottom);
  const svg = frame(width, height, "Hit rates so far: " + Object.entries(series).map(([name, points]) => `${names[name]} ${points.length ? percent(points.at(-1)[1]) : "none yet"}`).join(", "));
  for (const level of [0, 0.25, 0.5, 0.75, 1]) svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: y(level), y2: y(level) }), text(left - 8, y(level) + 4, percent(level), { "text-anchor": "end" }));
  svg.append(text(left, height - 8, "0"), text(width - right, height - 8, `${number(most)} launches`, { "text-anchor": "end" }));
  const labels = [];
  for (const [name, points] of Object.entries(series)) {
    if (points.length) svg.append(s("path", { class: `line s-${name} ${name === "nextapp" ? "strong" : ""}`, d: path(points.map(([n, rate]) => [x(n), y(rate)])) }));
    labels.push({ name, y: points.length ? y(points.at(-1)[1]) : y(0.5), rate: points.at(-1)?.[1] });
  }
  for (const label of apart(labels, 17, height - bottom)) svg.append(text(width - right + 10, label.y + 4, label.rate === undefined ? names[label.name] : `${names[label.name]} ${percent(label.rate)}`, { class: `c-${label.name}` }));
  if (labels.every((label) => label.rate === undefined)) svg.append(text((left + width - right) / 2, y(0.5) + 4, hint, { "text-anchor": "middle", class: "hint" }));
  return svg;
};

// Which app follows which. `pick(i, j)` is called with the cell under the pointer, and with nothing when it leaves.
export const heatMap = (apps, rows, most, title, pick) => (width) => {
  const n = apps.length, left = width < 400 ? 72 : 100, top = 78, right = width < 400 ? 20 : 26, cell = Math.min(34, Math.floor((width - left - right) / n)), height = top + n * cell;
  const strongest = rows.flatMap((row, i) => row.map((share, j) => [share, i, j])).sort((a, b) => b[0] - a[0]).slice(0, 5).map(([share, i, j]) => `${apps[j]} after ${apps[i]} ${percent(share)}`);
  const svg = frame(width, height, `${title}. Most often: ${strongest.join(", ")}`);
  svg.append(text(left - 10, 16, "last app ↓", { "text-anchor": "end", class: "axis-name" }), text(left, 16, "next app →", { class: "axis-name" }));
  const rowNames = apps.map((app, i) => text(left - 10, top + i * cell + cell / 2 + 4, app, { "text-anchor": "end" }));
  const columnNames = apps.map((app, i) => text(0, 0, app, { transform: `translate(${left + i * cell + cell / 2 + 4} ${top - 8}) rotate(-48)` }));
  svg.append(...rowNames, ...columnNames);
  const cells = rows.map((row, i) => row.map((share, j) => {
    const at = { x: left + j * cell + 1, y: top + i * cell + 1, width: cell - 2, height: cell - 2, rx: 4 };
    const group = s("g", {}, s("rect", { ...at, class: "cell-back" }), s("rect", { ...at, class: "cell", "fill-opacity": Math.min(1, Math.sqrt(share / most)).toFixed(3) }));
    group.addEventListener("pointerenter", () => pick(i, j));
    svg.append(group);
    return group;
  }));
  svg.addEventListener("pointerleave", () => pick());
  let lit = [];
  svg.light = (i, j) => {
    for (const each of lit) each.classList.remove("on");
    lit = i === undefined ? [] : [rowNames[i], columnNames[j], cells[i][j]];
    for (const each of lit) each.classList.add("on");
  };
  return svg;
};

// What a colour of a map means: from nothing to the most.
export const scale = (least, most) => h("p", { class: "scale" }, least, h("span", { class: "ramp", "aria-hidden": "true" }), most);

// One row per item: its name and meaning, its value, and below them the mean with its interval.
export const intervals = (items, { least = 0, most = 1, title, digits = 0, ticks = 5, row = 46 }) => (width) => {
  const left = 1, right = 12, top = 2, height = top + items.length * row + 24;
  const x = (value) => left + 8 + ((value - least) / (most - least)) * (width - left - right - 8);
  const svg = frame(width, height, title + ": " + items.map((item) => `${item.name} ${percent(item.mean, digits)}`).join(", "));
  for (let i = 0; i < ticks; i++) {
    const at = least + (i / (ticks - 1)) * (most - least);
    const anchor = i === 0 ? "start" : i === ticks - 1 ? "end" : "middle";
    svg.append(s("line", { class: "axis", x1: x(at), x2: x(at), y1: top, y2: height - 20 }), text(i === 0 ? left : i === ticks - 1 ? width : x(at), height - 4, percent(at), { "text-anchor": anchor }));
  }
  items.forEach((item, i) => {
    const y = top + i * row, line = y + 31, room = width - 72 - pen.measureText(item.name).width;
    const label = text(left, y + 15, "", { class: "label" });
    label.append(s("tspan", { class: "name" }, item.name), item.meaning ? s("tspan", { dx: 8 }, cut(item.meaning, room)) : "");
    svg.append(label, text(width, y + 15, percent(item.mean, digits), { class: "value", "text-anchor": "end" }), titled(s("g", {},
      s("line", { class: item.stroke ?? "stroke-accent", x1: x(item.low), x2: x(item.high), y1: line, y2: line, "stroke-width": 8, "stroke-linecap": "round", "stroke-opacity": .32 }),
      s("circle", { class: item.fill ?? "fill-accent", cx: x(item.mean), cy: line, r: 6.5 })), `${item.name}: ${percent(item.mean, 1)} (${percent(item.low, 1)} to ${percent(item.high, 1)})`));
  });
  return svg;
};

export const gainCurve = (points, chosen, open, allPhones) => (width) => {
  const height = 258, left = 44, right = 22, top = 30, bottom = 44;
  const low = Math.min(-0.01, ...points.map((p) => p.low)), high = Math.max(open * 1.25, ...points.map((p) => p.high));
  const first = Math.log10(allPhones[0]), last = Math.log10(allPhones.at(-1));
  const x = (phones) => left + ((Math.log10(phones) - first) / (last - first)) * (width - left - right), y = (gain) => top + ((high - gain) / (high - low)) * (height - top - bottom);
  const sorted = [...points].sort((a, b) => a.phones - b.phones), helps = sorted.filter((p, i) => sorted.slice(i).every((each) => each.low > 0))[0];
  const svg = frame(width, height, "Gain of a new phone by the number of phones: " + sorted.map((p) => `${number(p.phones)} ${(100 * p.mean).toFixed(1)} points`).join(", "));
  for (const exponent of [2, 3, 4, 5, 6, 7]) svg.append(s("line", { class: "axis", x1: x(10 ** exponent), x2: x(10 ** exponent), y1: top, y2: height - bottom }), text(x(10 ** exponent), height - bottom + 18, ["100", "1 k", "10 k", "100 k", "1 M", "10 M"][exponent - 2], { "text-anchor": "middle" }));
  svg.append(text(left - 36, 14, "points", { class: "axis-name" }), text(width - right + 6, height - 6, "phones that report", { "text-anchor": "end", class: "axis-name" }));
  svg.append(s("line", { class: "zero", x1: left, x2: width - right, y1: y(0), y2: y(0) }), text(left - 10, y(0) + 4, "0", { "text-anchor": "end" }));
  svg.append(s("line", { class: "stroke-muted", x1: left, x2: width - right, y1: y(open), y2: y(open), "stroke-dasharray": "5 5" }), text(left - 10, y(open) + 4, `+${(100 * open).toFixed(1)}`, { "text-anchor": "end" }));
  if (sorted.length > 1) svg.append(s("path", { class: "fill-soft", d: path(sorted.map((p) => [x(p.phones), y(p.high)])) + path([...sorted].reverse().map((p) => [x(p.phones), y(p.low)])).replace("M", "L") + "Z" }), s("path", { class: "line stroke-accent strong", d: path(sorted.map((p) => [x(p.phones), y(p.mean)])) }));
  svg.append(text(left + 6, y(open) - 7, "without privacy", { class: "halo" }));
  if (helps && points.length === allPhones.length) {
    const at = x(helps.phones), before = at > width / 2;
    svg.append(s("line", { class: "stroke-ink", x1: at, x2: at, y1: y(0), y2: height - bottom, "stroke-width": 1.5 }), text(at + (before ? -8 : 8), height - bottom - 6, `helps from ${number(helps.phones)} phones on`, { "text-anchor": before ? "end" : "start", class: "name halo" }));
  }
  for (const p of sorted) svg.append(titled(s("circle", { class: "fill-accent", cx: x(p.phones), cy: y(p.mean), r: p.phones === chosen ? 7 : 3.5 }), `${number(p.phones)} phones: ${(100 * p.mean).toFixed(1)} points (${(100 * p.low).toFixed(1)} to ${(100 * p.high).toFixed(1)})`));
  return svg;
};

export const bars = (items, title) => (width) => {
  const row = 32, left = Math.min(150, Math.round(width * 0.36)), right = 52, most = Math.max(1, ...items.map((item) => item.count));
  const svg = frame(width, items.length * row, title + ": " + items.map((item) => `${item.label} ${item.count}`).join(", "));
  items.forEach((item, i) => {
    const y = i * row, length = (item.count / most) * (width - left - right);
    svg.append(text(0, y + 20, cut(item.label, left - 12), { class: "name" }), titled(s("rect", { class: "fill-accent", x: left, y: y + 8, width: Math.max(2, length), height: 15, rx: 4 }), `${item.app}: ${number(item.count)}`), text(left + length + 8, y + 20, number(item.count), { class: "value" }));
  });
  return svg;
};

export const choices = (items, title) => (width) => {
  const row = 48, right = 44, most = Math.max(...items.map((item) => item.value));
  const svg = frame(width, items.length * row, title + ": " + items.map((item) => `${item.name} ${item.value.toFixed(1)}`).join(", "));
  items.forEach((item, i) => {
    const long = (item.value / most) * (width - right);
    svg.append(text(0, i * row + 14, item.name, { class: "name" }), s("rect", { class: "fill-sunk", x: 0, y: i * row + 22, width: width - right, height: 14, rx: 4 }), s("rect", { class: item.fill ?? "fill-muted", x: 0, y: i * row + 22, width: long, height: 14, rx: 4 }), text(width, i * row + 34, item.value.toFixed(item.digits ?? 1), { "text-anchor": "end", class: "value" }));
  });
  return svg;
};

export const columns = (values, names, title, axis) => (width) => {
  const height = 214, left = 34, top = 8, bottom = 44, most = Math.max(1, ...values), step = (width - left) / values.length;
  const y = (value) => top + (1 - value / most) * (height - top - bottom);
  const svg = frame(width, height, title);
  for (const level of steps(most)) svg.append(s("line", { class: "axis", x1: left, x2: width, y1: y(level), y2: y(level) }), text(left - 8, y(level) + 4, number(level), { "text-anchor": "end" }));
  values.forEach((value, i) => {
    svg.append(titled(s("rect", { class: "fill-accent", x: left + i * step + 1.5, y: y(value), width: step - 3, height: height - bottom - y(value), rx: Math.min(3, step / 4) }), `${names[i]} ${axis}: ${number(value)}`));
    if (i === 0 || i % 5 === 4 && i < values.length - 2 || i === values.length - 1) svg.append(text(left + i * step + step / 2, height - bottom + 18, names[i], { "text-anchor": "middle" }));
  });
  svg.append(text(width, height - 6, axis, { "text-anchor": "end", class: "axis-name" }));
  return svg;
};

export const week = (hours) => (width) => {
  const days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], left = 42, cell = (width - left) / 24, tall = Math.max(cell, 26), height = 7 * tall + 24;
  const most = Math.max(1, ...hours.flat()), busiest = hours.flatMap((row, day) => row.map((count, hour) => [count, day, hour])).sort((a, b) => b[0] - a[0])[0];
  const svg = frame(width, height, `Launches by weekday and hour; most on ${days[busiest[1]]} from ${busiest[2]}:00`);
  hours.forEach((row, day) => {
    svg.append(text(0, day * tall + tall / 2 + 4, days[day]));
    row.forEach((count, hour) => {
      const at = { x: left + hour * cell + 1, y: day * tall + 1, width: cell - 2, height: tall - 2, rx: Math.min(4, cell / 4) };
      svg.append(titled(s("g", {}, s("rect", { ...at, class: "cell-back" }), s("rect", { ...at, class: "cell", "fill-opacity": Math.sqrt(count / most).toFixed(3) })), `${days[day]} ${hour}:00 to ${hour + 1}:00: ${number(count)}`));
    });
  });
  for (const hour of [0, 6, 12, 18]) svg.append(text(left + hour * cell, height - 6, `${hour}:00`));
  return svg;
};

// Which app follows which: the app before on the left, the app after on the right; a ribbon's width is the count.
// The strongest ribbon of each app on the left is dark, so that the picture can be read without a pointer.
export const flow = (apps, counts) => (width) => {
  const gap = 12, bar = 8, left = Math.min(140, Math.round(width * 0.26)), right = left, n = apps.length;
  const out = counts.map((row) => row.reduce((a, b) => a + b, 0)), into = apps.map((_, j) => counts.reduce((sum, row) => sum + row[j], 0));
  const best = counts.map((row) => row.indexOf(Math.max(...row)));
  const total = Math.max(1, out.reduce((a, b) => a + b, 0)), height = 372, size = (height - gap * (n - 1)) / total;
  const svg = frame(width, height, "Which app follows which: " + apps.map((app, i) => `after ${app.label} most often ${apps[best[i]].label}`).join("; "));
  const start = (sizes) => { let at = 0; return sizes.map((each) => { const here = at; at += each * size + gap; return here; }); };
  const from = start(out), to = start(into), used = to.map(() => 0), ribbons = [];
  const show = (which) => { svg.classList.add("flowing"); ribbons.forEach((r) => r.path.classList.toggle("hot", which(r))); };
  const hide = () => { svg.classList.remove("flowing"); ribbons.forEach((r) => r.path.classList.remove("hot")); };
  counts.forEach((row, i) => {
    let at = from[i];
    row.forEach((count, j) => {
      if (!count) return;
      const tall = count * size, a = left + bar, b = width - right - bar, middle = (a + b) / 2, y0 = at, y1 = to[j] + used[j];
      at += tall; used[j] += tall;
      const ribbon = s("path", { class: `ribbon ${j === best[i] ? "most" : ""}`, d: `M${a} ${y0}C${middle} ${y0} ${middle} ${y1} ${b} ${y1}L${b} ${y1 + tall}C${middle} ${y1 + tall} ${middle} ${y0 + tall} ${a} ${y0 + tall}Z` });
      titled(ribbon, `${apps[j].label} after ${apps[i].label}: ${number(count)} times`);
      ribbons.push({ path: ribbon, i, j });
      ribbon.addEventListener("pointerenter", () => show((r) => r.path === ribbon)); ribbon.addEventListener("pointerleave", hide);
    });
  });
  svg.append(...ribbons.filter((r) => r.j !== best[r.i]).map((r) => r.path), ...ribbons.filter((r) => r.j === best[r.i]).map((r) => r.path));
  const short = (label) => cut(label, left - 12);
  apps.forEach((app, i) => {
    const before = s("rect", { class: "node", x: left, y: from[i], width: bar, height: Math.max(2, out[i] * size), rx: 3 });
    const after = s("rect", { class: "node", x: width - right - bar, y: to[i], width: bar, height: Math.max(2, into[i] * size), rx: 3 });
    before.addEventListener("pointerenter", () => show((r) => r.i === i)); before.addEventListener("pointerleave", hide);
    after.addEventListener("pointerenter", () => show((r) => r.j === i)); after.addEventListener("pointerleave", hide);
    svg.append(before, after, text(left - 10, from[i] + (out[i] * size) / 2 + 4, short(app.label), { "text-anchor": "end", class: "name" }), text(width - right + 10, to[i] + (into[i] * size) / 2 + 4, short(app.label), { class: "name" }));
  });
  return svg;
};
