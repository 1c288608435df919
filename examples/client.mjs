#!/usr/bin/env node
/* A phone in plain JavaScript, for Node 18.3 and later, without packages. Written from docs/protocol.md.

     node examples/client.mjs --server https://nextapp.example --code ABCD-EFGH-JKLM-NPQR \
       --history chat,mail,chat,maps --state phone.json

   Each run is one visit: enrol if there is no secret yet, fetch the broadcast if it is a new one, check
   it, ask for tokens or (hours later) draw the report once, send it until the server has it. The state file has all that must outlive
   the run; run it again every few hours. A CA of your own: NODE_EXTRA_CA_CERTS=ca.pem.

     --epsilon 1 --day 1 --life 1    the most ε for a report, a day, and in all
     --hours 20                      between two reports
     --patience 120                  seconds to wait for a server that is down or asks to wait
     --anew                          enrol again, with another --code; what was spent stays spent
     --now                           without the pauses before a report, to try it by hand

   It ends with 0, with 75 where the server asks to come back later, or with 1 and a reason. */

import { createHash, createHmac, randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, realpathSync, renameSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { pipeline } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createGunzip } from "node:zlib";

const W = 1n << 64n; // one more than the largest word
const MASK = W - 1n;
const LARGEST_BROADCAST = 1 << 22;
const LARGEST_ANSWER = 1 << 16;
const WINDOW = 64; // digests that a history lists at most
const DAY = 86400;
const NOT_NOW = [408, 429, 500, 502, 503, 504]; // the same bytes again, later

const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
const sum = (values) => values.reduce((total, value) => total + value, 0);
const bitLength = (n) => (n > 0 ? n.toString(2).length : 0);
const isOdd = (v) => {
  for (let shift = 16; shift; shift >>= 1) v ^= v >>> shift;
  return v & 1; // whether v has an odd number of ones in binary
};
const range = (n, f = (i) => i) => Array.from({ length: n }, (_, i) => f(i));

function must(holds, message) {
  if (!holds) throw new Error(message);
}

/** To the nearest whole number, of two equally near to the even one. */
function roundEven(x) {
  const below = Math.floor(x);
  const rest = x - below;
  return below + (rest > 0.5 || (rest === 0.5 && below % 2 !== 0) ? 1 : 0);
}

// The broadcast

const ARRAYS = {
  F64: [8, (view, at) => view.getFloat64(at, true)],
  F32: [4, (view, at) => view.getFloat32(at, true)],
  I64: [8, (view, at) => Number(view.getBigInt64(at, true))],
  U8: [1, (view, at) => view.getUint8(at)],
  U16: [2, (view, at) => view.getUint16(at, true)],
  U32: [4, (view, at) => view.getUint32(at, true)],
};

export function readBroadcast(data) {
  must(data.length >= 8, "the broadcast is cut short");
  const size = Number(data.readBigUInt64LE(0));
  must(size <= data.length - 8, "the broadcast is cut short");
  const { __metadata__: words, ...entries } = JSON.parse(data.subarray(8, 8 + size).toString());
  const body = data.subarray(8 + size);
  must(words?.kind === "nextapp broadcast", `no broadcast, but ${words?.kind}`);
  const { sha256: checksum, ...covered } = words;
  const text = canonical([entries, covered]);
  must(sha256(text, Buffer.alloc(1), body).toString("hex") === checksum, "the broadcast is damaged");
  const array = (name) => {
    if (!(name in entries)) return null;
    const { dtype, shape, data_offsets: [start, stop] } = entries[name];
    const [width, number] = ARRAYS[dtype] ?? [];
    const n = shape.reduce((product, length) => product * length, 1);
    must(width && start >= 0 && stop <= body.length && stop - start === n * width, `${name} has other bytes than its shape`);
    const view = new DataView(body.buffer, body.byteOffset + start, stop - start);
    return range(n, (i) => number(view, i * width));
  };
  const vectors = array("app_vectors");
  const [rows, d] = entries.app_vectors?.shape ?? [Number(words.n_apps), 0];
  return {
    round: Number(words.round),
    settings: JSON.parse(words.settings),
    apps: JSON.parse(words.apps),
    request: words.request ? JSON.parse(words.request) : null,
    history: words.history ? JSON.parse(words.history) : { digests: [], chain: "0".repeat(64) },
    buckets: words.buckets ? { ...JSON.parse(words.buckets), slots: array("slots") } : null,
    Q: range(rows, (i) => (vectors ? vectors.slice(i * d, (i + 1) * d) : [])),
    crowd: entries["crowd.popularity"] ? readCrowd(array) : null,
    keys: words.keys ? JSON.parse(words.keys) : [],
  };
}

function readCrowd(array) {
  const popularity = array("crowd.popularity").map((code) => (code === 65535 ? 0 : 2 ** (-code / 2048)));
  const all = sum(popularity);
  const starts = [0];
  for (const n of array("crowd.followers")) starts.push(starts.at(-1) + n);
  return {
    popularity: popularity.map((value) => value / all),
    starts,
    following: array("crowd.following"),
    share: array("crowd.share").map((code) => 2 ** (-code / 24)),
  };
}

/** JSON as the checksum takes it: sorted keys, ", " and ": ", nothing but printable ASCII. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    const keys = Object.keys(value).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    return `{${keys.map((key) => `${canonical(key)}: ${canonical(value[key])}`).join(", ")}}`;
  }
  return JSON.stringify(value).replace(/[^ -~]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** What must hold before a launch is looked at. */
export function checkBroadcast({ round, settings, apps, buckets, Q, crowd, keys }) {
  const n = Q.length;
  const d = n ? Q[0].length : 0;
  must(Number.isSafeInteger(round) && round >= 0, `round ${round} is no whole number below 2^53`);
  must(n <= 1 << 14 && (n >= 1 || buckets), `${n} apps; 1 to 2^14 are taken`);
  must(d <= 1 << 7 && n * d <= 1 << 18, `${n} app vectors of ${d} numbers are too many`);
  must(Q.every((q) => q.every((x) => Math.abs(x) <= 1e6)), "an app vector has no scale to compute with");
  const { lam, alpha, gamma, reading, inference } = settings;
  must(lam >= 1e-6 && lam <= 1e6, `lam must be from 1e-6 to 1e6, got ${lam}`);
  must(alpha >= 0 && alpha <= 1 && gamma >= 0 && gamma <= 1, `alpha and gamma must be from 0 to 1, got ${alpha}, ${gamma}`);
  must(reading in READINGS, `the reading ${reading} is not known`);
  must(/^(sum|mean|last|none|window:0*[1-9][0-9]{0,5})$/.test(inference), `the inference ${inference} is not known`);
  must(!apps.length || apps.length === n, `${apps.length} names for ${n} apps`);
  must(new Set(apps).size === apps.length, "an app is named twice");
  must(apps.every((name) => typeof name === "string" && name.length >= 1 && [...name].length <= 255), "a name must have 1 to 255 characters");
  const regions = keys.map(({ region }) => region);
  must(keys.length <= 64 && regions.every((one) => regions.filter((each) => each === one).length <= 2), "so many keys would tell phones apart");
  if (buckets) {
    const { n_buckets: size, salt, slots } = buckets;
    must(!apps.length, "names and buckets in one catalogue");
    must(Number.isInteger(Math.log2(size)) && size >= 1 && size <= 1 << 20, `n_buckets must be a power of two up to 2^20, got ${size}`);
    must(typeof salt === "string" && [...salt].length <= 64, "the salt must have up to 64 characters");
    must(slots?.length === n && new Set(slots).size === n && slots.every((slot) => slot < size), "one bucket for each row, none twice");
  }
  if (crowd) {
    const { popularity, starts, following, share } = crowd;
    must(popularity.length === n && starts.length === n + 1, "the crowd has another number of apps");
    must(popularity.every(Number.isFinite), "no app of the crowd is ever launched");
    must(following.length === starts[n] && share.length === starts[n], "the crowd's followers do not fit their numbers");
    for (let row = 0; row < n; row++) {
      const followers = following.slice(starts[row], starts[row + 1]);
      must(new Set(followers).size === followers.length && followers.every((app) => app < n), "a follower twice, or not in the catalogue");
      must(sum(share.slice(starts[row], starts[row + 1])) <= 1 + 1e-9, "the crowd's shares of a row sum to more than 1");
    }
  }
}

const OPTIONS = {
  walsh: { b: 8 }, harmony: { k: 64 }, kashin: { b: 8, K: 8 },
};

/** What must hold before a report is drawn. */
export function checkRequest({ mechanism, epsilon, clip, options, question }, D, limit = 1) {
  must(["gradient", "launches", "transitions"].includes(question), `the question ${question} is not known`);
  must(mechanism in MECHANISMS, `the mechanism ${mechanism} is not one that this client has`);
  must(epsilon >= 2 ** -32 && epsilon <= limit, `epsilon ${epsilon} is beyond the owner's ${limit}`);
  must(clip !== null && clip >= 1e-9 && clip <= 1e9, `the clip ${clip} has no scale to compute with`);
  for (const [name, value] of Object.entries(options)) {
    const largest = OPTIONS[mechanism][name] ?? 0;
    must((name === "K" || Number.isInteger(value)) && value >= 1 && value <= largest, `option ${name} must be from 1 to ${largest}, got ${value}`);
  }
  if (mechanism === "kashin") must(D <= 2 ** 16, "too much to compute");
  if (mechanism === "walsh" || question === "transitions") must(D < 2 ** 23, "too many cells");
}

// Which broadcast: digest, history, chain

/** true, false, or null where the one in hand is older than all that the history lists. */
export function continues({ digests, chain }, held) {
  const tooLongAgo = digests.length === WINDOW && digests[0][0] > held.round;
  return tooLongAgo ? null : continuesBy(digests, chain, held);
}

/** The same by a list of the digests of all broadcasts since the one in hand. */
export function continuesBy(digests, chain, held) {
  const at = digests.findIndex(([round, digest]) => round === held.round && digest === held.digest);
  const link = (before, [, digest]) => sha256(before, Buffer.from(digest, "hex"));
  return at >= 0 && digests.slice(at).reduce(link, Buffer.from(held.chain, "hex")).toString("hex") === chain;
}

// Bits

export class SystemWords {
  next() {
    return randomBytes(8).readBigUInt64LE();
  }
}

/** The words of a token, which the server knows too. */
export class Coins {
  constructor(signature) {
    this.signature = signature;
    this.i = 0n;
  }

  next() {
    const said = Buffer.alloc(21, "nextapp coins", "ascii");
    said.writeBigUInt64LE(this.i++, 13);
    return createHmac("sha256", this.signature).update(said).digest().readBigUInt64LE();
  }
}

export function below(words, n) {
  const size = BigInt(n);
  for (;;) {
    const word = words.next();
    if (word < W - (W % size)) return Number(word % size);
  }
}

export function distinct(words, k, n) {
  const taken = new Set();
  for (let top = n - k; top < n; top++) {
    const r = below(words, top + 1);
    taken.add(taken.has(r) ? top : r);
  }
  return [...taken].sort((a, b) => a - b);
}

/** Philox 4x64-10. */
export function philox(counter, key) {
  let [a, b, c, d] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const first = 0xd2e7470ee14c6c93n * a;
    const second = 0xca5a826395121157n * c;
    [a, b, c, d] = [(second >> 64n) ^ b ^ k0, second & MASK, (first >> 64n) ^ d ^ k1, first & MASK];
    k0 = (k0 + 0x9e3779b97f4a7c15n) & MASK;
    k1 = (k1 + 0xbb67ae8584caa73bn) & MASK;
  }
  return [a, b, c, d];
}

const asNumber = (text) => BigInt(`0x${Buffer.from(text).reverse().toString("hex")}`);

// Whole numbers from real ones

const ONE = 10n ** 80n; // fixed point, 80 digits after the point: 60 significant ones and more

/** A fraction just below e^(ε/k), [above, below]. */
export function expFromBelow(epsilon, k) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, Math.min(epsilon, 64 * k)); // ε exactly as the float it is
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 0x7ffn);
  const mantissa = (bits & ((1n << 52n) - 1n)) | (exponent ? 1n << 52n : 0n);
  const shift = BigInt(Math.max(exponent, 1) - 1075);
  const x = downTo60(shift < 0n ? (mantissa * ONE) / (BigInt(k) << -shift) : ((mantissa << shift) * ONE) / BigInt(k));
  let [term, total] = [ONE, 0n];
  for (let i = 1n; term > 0n; i++) {
    total += term;
    term = (term * x) / (ONE * i);
  }
  return [downTo60(total) * (10n ** 50n - 1n), ONE * 10n ** 50n];
}

function downTo60(value) {
  const last = 10n ** BigInt(Math.max(value.toString().length - 60, 0));
  return value - (value % last);
}

/** T of walsh and kashin: of n outputs s are favoured. */
export function threshold(epsilon, s, n) {
  const [above, below_] = expFromBelow(epsilon, 1);
  const gain = (above - below_) * BigInt(s);
  const T = (W * gain) / (gain + BigInt(n) * below_);
  return T < W ? T : MASK;
}

const density = (z) => Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);

/** 1 − Φ(z). */
function upperTail(z) {
  if (z < 0) return 1 - upperTail(-z);
  if (z < 3) {
    let [term, total] = [z, 0];
    for (let odd = 3; total + term !== total; odd += 2) {
      total += term;
      term *= (z * z) / odd;
    }
    return 0.5 - density(z) * total;
  }
  let fraction = z;
  for (let i = 200; i >= 1; i--) fraction = z + i / fraction;
  return density(z) / fraction;
}

const GRID = range(4801, (i) => -12 + i / 200);
const LOG_TAIL = GRID.map((z) => Math.log(upperTail(z)));

/** The k of walsh: how many of m codewords are favoured. */
export function nFavoured(epsilon, m) {
  const logFactorial = [0];
  for (let i = 1; i <= m; i++) logFactorial.push(logFactorial[i - 1] + Math.log(i));
  const mean = (i) => // of the i-th largest of m independent N(0, 1)
    sum(GRID.map((z, at) => {
      const ways = logFactorial[m] - logFactorial[i - 1] - logFactorial[m - i];
      return z * Math.exp(ways - (z * z) / 2 + (m - i) * LOG_TAIL[4800 - at] + (i - 1) * LOG_TAIL[at]);
    })) / 200 / Math.sqrt(2 * Math.PI);
  const excess = Math.expm1(Math.min(epsilon, 64));
  let [best, most, total] = [1, -Infinity, 0];
  for (let k = 1; k <= Math.max(1, m / 2); k++) { // beyond the half the means are negative
    total += mean(k);
    const value = total / (excess * k + m);
    if (value > most) [best, most] = [k, value];
  }
  return best;
}

// The mechanisms: an answer {D, cells} in, a payload out. `cells` maps the entries that are not 0, in
// ascending order, to their values; bits are the operating system's words.

/** Whole numbers side by side, [value, width] each. */
export function pack(fields) {
  let [total, at] = [0n, 0n];
  for (const [value, width] of fields) {
    total |= BigInt(value) << at;
    at += BigInt(width);
  }
  return Buffer.from(range(Number((at + 7n) / 8n), (i) => Number((total >> BigInt(8 * i)) & 255n)));
}

export function harmony({ D, cells }, { epsilon, clip, options }, bits, coins) {
  const k = options.k ?? nEntries(epsilon, D);
  const positions = distinct(coins, k, D);
  const floor = harmonyFloor(epsilon, k);
  const signs = positions.map((position) => coin(bits, signThreshold((cells.get(position) ?? 0) / clip, floor)));
  return pack([...positions.map((position) => [position, bitLength(D - 1)]), ...signs.map((sign) => [sign, 1])]);
}

export function nEntries(epsilon, D) {
  const loss = (k) => 1 / (k * Math.tanh(epsilon / (2 * k)) ** 2);
  const candidates = range(Math.min(D, Math.ceil(epsilon) + 1), (i) => i + 1);
  return candidates.reduce((best, k) => (loss(k) < loss(best) ? k : best));
}

/** T₀ of harmony. */
export function harmonyFloor(epsilon, k) {
  const [above, below_] = expFromBelow(epsilon, k);
  const all = above + below_;
  return (W * below_ + all - 1n) / all;
}

function signThreshold(x, floor) {
  const n = Math.floor((1 + Math.max(-1, Math.min(1, x))) * 2 ** 52);
  return floor + (((W - 2n * floor) * BigInt(n)) >> 53n);
}

const coin = (bits, T) => (bits.next() < T ? 1 : 0);

/** Entries divided by the larger of the clip and their norm. */
function inBall(cells, clip) {
  let largest = 0;
  for (const value of cells.values()) largest = Math.max(largest, Math.abs(value));
  let squares = 0;
  for (const value of cells.values()) squares += (value / largest) ** 2;
  const norm = Math.sqrt(squares);
  const scale = (y) => (largest > clip / norm ? y / norm : y * (largest / clip));
  return new Map([...cells].map(([cell, value]) => [cell, scale(value / largest)]));
}

/** Entries by number in units of 2^-22, completed to length 1 by entry number D. */
function onSphere({ D, cells }, clip) {
  const x = [...inBall(cells, clip)];
  const rest = Math.max(0, 1 - sum(x.map(([, value]) => value * value)));
  return [...x, [D, Math.sqrt(rest)]].map(([cell, value]) => [cell, roundEven(value * 2 ** 22)]);
}

/** j, favoured or any, and the seed. */
function drawCodeword(scores, { epsilon }, seed, word, bits) {
  const m = scores.length;
  const k = nFavoured(epsilon, m);
  const order = range(m).sort((i, j) => scores[j] - scores[i] || i - j);
  const best = order.slice(0, k).sort((i, j) => i - j);
  const j = word < threshold(epsilon, k, m) ? best[below(bits, k)] : below(bits, m);
  return pack([[seed, 64], [j, bitLength(m - 1)]]);
}

/** Where an entry stands among the 2^n places of walsh. */
export function place(entry, n) {
  for (const factor of [2654435761, 2246822519]) {
    entry = (Math.imul(entry, factor) >>> 0) % 2 ** n;
    entry ^= entry >>> ((n + 1) >> 1);
  }
  return entry;
}

/** The sign δ of a place. */
export const placeSign = (v) => (isOdd(v & (v >>> 1)) ? -1 : 1);

/** The words of a seed: ρ by parts, and the word of signs of each codeword. */
export function walshWords(seed, n, m) {
  const words = range(8 + Math.ceil(m / 4), (g) => philox([BigInt(g + 1), 0n, 0n, 0n], [seed, asNumber("walsh")])).flat();
  const rho = range(64, (l) => Number((words[l >> 1] >> BigInt(32 * (l % 2))) & 0xffffffffn) % 2 ** n);
  return { rho, signs: words.slice(32, 32 + m) };
}

export function walsh(answer, request, bits, coins) {
  const b = request.options.b ?? 8;
  const n = bitLength(answer.D);
  const [m, size] = [1 << b, 1 << Math.min(b, n)];
  const [seed, word] = [coins.next(), bits.next()];
  const { rho, signs } = walshWords(seed, n, m);
  const values = onSphere(answer, request.clip).map(([cell, X]) => {
    const v = place(cell, n);
    return [v, placeSign(v) * X];
  });
  const scores = new Array(m).fill(0);
  for (let l = 0; l < 64; l++) {
    const y = new Float64Array(size); // whole numbers far below 2^53
    for (const [v, X] of values) {
      const turned = ((v >>> l % n) | (v << (n - (l % n)))) & (2 ** n - 1);
      y[turned % size] += isOdd(rho[l] & v) ? -X : X;
    }
    walshHadamard(y);
    for (let j = 0; j < m; j++) scores[j] += (signs[j] >> BigInt(l)) & 1n ? y[j % size] : -y[j % size];
  }
  return drawCodeword(scores, request, seed, word, bits);
}

/** Σ_v y[v] (−1)^(ones that v and j share), for all j, in place. */
function walshHadamard(y) {
  for (let half = 1; half < y.length; half *= 2) {
    for (let i = 0; i < y.length; i++) {
      if (!(i & half)) [y[i], y[i + half]] = [y[i] + y[i + half], y[i] - y[i + half]];
    }
  }
}

const firstLeast = (some, value) => some.map((one) => [value(one), one]).reduce((a, b) => (b[0] < a[0] ? b : a))[1];

/** How many signs kashin sends. */
export function nSigns(epsilon) {
  const excess = Math.expm1(Math.min(epsilon, 64));
  return firstLeast(range(16, (i) => i + 1), (b) => (1 + 2 ** b / excess) ** 2 / b);
}

export function kashin({ D, cells }, { epsilon, clip, options }, bits, coins) {
  const N = 2 ** (bitLength(D - 1) + 1);
  const b = options.b ?? Math.min(nSigns(epsilon), N);
  const z = kashinCoefficients(inBall(cells, clip), D, N, options.K ?? 1.8);
  const positions = distinct(coins, b, N);
  const rounded = positions.map((position) => coin(bits, signThreshold(z[position], 0n)));
  const [word, other] = [bits.next(), bits.next()];
  const signs = word < threshold(epsilon, 1, 2 ** b) ? rounded : positions.map((_, i) => (other >> BigInt(i)) & 1n);
  return pack([...positions.map((position) => [position, bitLength(N - 1)]), ...signs.map((sign) => [sign, 1])]);
}

/** z (N,): x = U z K/√N, spread until no entry is beyond ±1, or 60 times. */
function kashinCoefficients(x, D, N, K) {
  const words = { at: 0, next() { return philox([BigInt((this.at >> 2) + 1), 0n, 0n, 0n], [0n, asNumber("kashin")])[this.at++ % 4]; } };
  const rows = distinct(words, D, N);
  const signs = rows.map(() => (words.next() >> 63n ? 1 : -1));
  const transform = (y) => {
    walshHadamard(y);
    return y.map((value) => value / Math.sqrt(N));
  };
  const analysis = (values) => {
    const y = new Float64Array(N);
    values.forEach((value, i) => (y[rows[i]] = signs[i] * value));
    return transform(y);
  };
  const dense = range(D, (i) => x.get(i) ?? 0);
  const bound = K / Math.sqrt(N);
  let a = analysis(dense);
  for (let step = 0; step < 60 && a.some((value) => Math.abs(value) > bound); step++) {
    a = a.map((value) => Math.max(-0.95 * bound, Math.min(0.95 * bound, value)));
    const back = transform(a.slice());
    const missing = analysis(dense.map((value, i) => value - signs[i] * back[rows[i]]));
    a = a.map((value, i) => value + missing[i]);
  }
  return a.map((value) => value / bound);
}

export const MECHANISMS = { walsh, harmony, kashin };

// The answers

/** Cells of a dense matrix, row by row. */
export function answerOf(rows) {
  const values = rows.flat();
  return { D: values.length, cells: new Map([...values.entries()].filter(([, value]) => value)) };
}

const sorted = (cells) => new Map([...cells].sort(([a], [b]) => a - b));

function count(counts, key) {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

export function bucketOf(name, { n_buckets: size, salt }) {
  const digest = sha256("nextapp bucket", salt, Buffer.alloc(1), name);
  return Number(digest.readBigUInt64LE() % BigInt(size));
}

/** √ of the share of launches in each bucket. */
export function launches(names, buckets) {
  const counts = new Map();
  for (const name of names) count(counts, bucketOf(name, buckets));
  const cells = [...counts].map(([bucket, n]) => [bucket, Math.sqrt(n / names.length)]);
  return { D: buckets.n_buckets, cells: sorted(cells) };
}

/** Rows of the catalogue by launch, null where an app is outside it. */
export function rowsOf(names, { apps, buckets }) {
  const keys = new Map((buckets ? buckets.slots : apps).map((key, row) => [key, row]));
  return names.map((name) => keys.get(buckets ? bucketOf(name, buckets) : name) ?? null);
}

/** Which app came after which, all at once; `found` has null for apps outside the catalogue. */
export function transitionVector(found, n) {
  const [pairs, leavings] = [new Map(), new Map()];
  for (let i = 1; i < found.length; i++) {
    if (found[i - 1] === null || found[i] === null) continue;
    count(pairs, found[i - 1] * (n + 1) + found[i]);
    count(leavings, found[i - 1]);
  }
  const v = [...pairs].map(([cell, times]) => {
    const j = Math.floor(cell / (n + 1));
    return [cell, ((cell % (n + 1) === j ? 0.3 : 1) * times) / Math.sqrt(leavings.get(j))];
  });
  const norm = Math.sqrt(sum(v.map(([, value]) => value * value)));
  return { D: n * (n + 1), cells: sorted(v.map(([cell, value]) => [cell, value / norm])) };
}

/** S_ij by row and column, for each reading; n(j→i) counts i right after j. */
const READINGS = {
  example: (previous, next, times, out) => [previous, next, times / out.get(previous)],
  equation: (previous, next, times, out) => [next, previous, out.has(next) ? times / out.get(next) : 0],
  authors: (previous, next, times, out, into) => [next, previous, times / into.get(next)],
  none: (previous, next) => [next, previous, 0],
};

/** p and F of the paper's model. */
export function gradient(history, Q, { lam, alpha, gamma, reading }) {
  const [n, d] = [Q.length, Q[0].length];
  const [counts, pairs, out, into] = [new Map(), new Map(), new Map(), new Map()];
  history.forEach((app, i) => {
    count(counts, app);
    if (!i) return;
    count(pairs, history[i - 1] * n + app);
    count(out, history[i - 1]);
    count(into, app);
  });
  const S = [...pairs].map(([pair, times]) => READINGS[reading](Math.floor(pair / n), pair % n, times, out, into));
  const dot = (x, y) => sum(x.map((value, i) => value * y[i]));
  const powers = range(n, (i) => (counts.has(i) ? counts.get(i) ** gamma : 0));
  const all = sum(powers) + alpha * n;
  const c = powers.map((power) => (all > 0 ? (power + alpha) / all : 0));
  const h = new Array(n).fill(0);
  for (const [i, j, weight] of S) h[i] += weight * dot(Q[i], Q[j]);
  const A = range(d, (row) => range(d, (column) => (row === column ? lam : 0)));
  const b = new Array(d).fill(0);
  Q.forEach((q, i) => {
    for (let row = 0; row < d; row++) {
      b[row] += q[row] * c[i] * ((counts.has(i) ? 1 : 0) - h[i]);
      for (let column = 0; column < d; column++) A[row][column] += q[row] * c[i] * q[column];
    }
  });
  const p = solve(A, b);
  const D = Q.map((q, i) => c[i] * (dot(q, p) + h[i] - (counts.has(i) ? 1 : 0)));
  const F = D.map((value) => p.map((entry) => value * entry));
  for (const [i, j, weight] of S) {
    for (let column = 0; column < d; column++) {
      F[i][column] += D[i] * weight * Q[j][column];
      F[j][column] += weight * D[i] * Q[i][column];
    }
  }
  return { p, F };
}

/** A x = b by elimination; A is positive definite. */
function solve(A, b) {
  const rows = A.map((row, i) => [...row, b[i]]);
  rows.forEach((pivot, k) => {
    for (let i = k + 1; i < rows.length; i++) {
      const factor = rows[i][k] / pivot[k];
      for (let j = k; j <= rows.length; j++) rows[i][j] -= factor * pivot[j];
    }
  });
  const x = new Array(rows.length).fill(0);
  for (let i = rows.length - 1; i >= 0; i--) {
    const known = sum(x.slice(i + 1).map((value, j) => value * rows[i][i + 1 + j]));
    x[i] = (rows[i][rows.length] - known) / rows[i][i];
  }
  return x;
}

/** How long the answer is, which a phone knows before it looks at a launch. */
function answerLength({ request: { question }, buckets, Q }) {
  if (question === "launches") {
    must(buckets, "launches are asked for by bucket, and the catalogue has none");
    return buckets.n_buckets;
  }
  return question === "transitions" ? Q.length * (Q.length + 1) : Q.length * (Q[0]?.length ?? 0);
}

/** The answer to the question of a broadcast, from the app names of the launches, oldest first. */
export function answerTo(broadcast, names) {
  const { request, buckets, Q, settings } = broadcast;
  if (request.question === "launches") return launches(names, buckets);
  const found = rowsOf(names, broadcast);
  if (request.question === "transitions") return transitionVector(found, Q.length);
  const known = found.filter((row) => row !== null);
  const answer = answerOf(gradient(known, Q, settings).F);
  for (const value of answer.cells.values()) {
    if (!Number.isFinite(value)) return { D: answer.D, cells: new Map() }; // zeros are reported
  }
  return answer;
}

// The report

export function crc32(data) {
  let crc = ~0;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

export function reportBytes(mechanism, round, payload) {
  const head = Buffer.alloc(16);
  head.write("nR\x01", "latin1");
  head.writeUInt8(mechanism.length, 3);
  head.writeBigUInt64LE(BigInt(round), 4);
  head.writeUInt32LE(payload.length, 12);
  const body = Buffer.concat([head, Buffer.from(mechanism, "ascii"), payload]);
  const end = Buffer.alloc(4);
  end.writeUInt32LE(crc32(body));
  return Buffer.concat([body, end]);
}

// Tokens: blind signatures, RFC 9474, RSABSSA-SHA384-PSS-Randomized

const E = 65537n;
const toNumber = (data) => BigInt(`0x${data.toString("hex")}`);
const toBytes = (number, size) => Buffer.from(number.toString(16).padStart(2 * size, "0"), "hex");
const sha384 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha384")).digest();

export function keyId({ region, modulus }) {
  return `${region}-${sha256(Buffer.from(modulus, "hex")).toString("hex").slice(0, 32)}`;
}

function power(base, exponent, n) {
  let result = 1n;
  for (let rest = exponent; rest; rest >>= 1n) {
    if (rest & 1n) result = (result * base) % n;
    base = (base * base) % n;
  }
  return result;
}

function inverse(value, n) {
  let [r0, r1, t0, t1] = [n, value, 0n, 1n];
  while (r1) [r0, r1, t0, t1] = [r1, r0 % r1, t1, t0 - (r0 / r1) * t1];
  return ((t0 % n) + n) % n;
}

/** EMSA-PSS with SHA-384 for 2,048 bits: one bit free, 207 bytes masked, 48 of hash, 0xbc. */
function encoded({ nonce, salt }) {
  const prepared = Buffer.concat([Buffer.from(nonce, "hex"), Buffer.from("nextapp token")]);
  const hash = sha384(Buffer.alloc(8), sha384(prepared), Buffer.from(salt, "hex"));
  const mask = Buffer.concat(range(5, (part) => sha384(hash, Buffer.from([0, 0, 0, part])))).subarray(0, 207);
  const block = toNumber(Buffer.concat([Buffer.from([1]), Buffer.from(salt, "hex")])) ^ toNumber(mask);
  return toNumber(Buffer.concat([toBytes(block % (1n << 1655n), 207), hash, Buffer.from([0xbc])]));
}

const commonFactor = (a, b) => (b ? commonFactor(b, a % b) : a);

/**
 * To be kept before the server is asked: it makes the token, and asks for no second one. A factor that the encoded
 * message shares with n would not be hidden, and r is divided by.
 */
export function newBlinding({ modulus }) {
  const n = BigInt(`0x${modulus}`);
  for (;;) {
    const r = 1n + (toNumber(randomBytes(320)) % (n - 1n)); // 512 bits more: as good as uniform
    const made = { nonce: randomBytes(32).toString("hex"), salt: randomBytes(48).toString("hex"), factor: r.toString(16) };
    if (commonFactor(encoded(made) * r, n) === 1n) return made;
  }
}

export function blinded({ modulus }, blinding) {
  const n = BigInt(`0x${modulus}`);
  return toBytes((encoded(blinding) * power(BigInt(`0x${blinding.factor}`), E, n)) % n, 256).toString("base64url");
}

/** The token, if the server has signed by the key that it publishes. */
export function unblinded(key, blinding, answer) {
  const n = BigInt(`0x${key.modulus}`);
  const signature = (toNumber(Buffer.from(answer, "base64url")) * inverse(BigInt(`0x${blinding.factor}`), n)) % n;
  must(power(signature, E, n) === encoded(blinding), "the server signs by another key than the one it publishes");
  const data = Buffer.concat([Buffer.from(blinding.nonce, "hex"), toBytes(signature, 256)]);
  return `${keyId(key)}.${data.toString("base64url")}`;
}

export const signatureOf = (token) => Buffer.from(token.split(".")[1], "base64url").subarray(32);

/** Draw a report. Once for each token only: the bytes are kept until the server has them. */
function drawReport(broadcast, names, token) {
  const { request, round } = broadcast;
  const coins = new Coins(signatureOf(token));
  const payload = MECHANISMS[request.mechanism](answerTo(broadcast, names), request, new SystemWords(), coins);
  return reportBytes(request.mechanism, round, payload);
}

// HTTP

/** The server asks to come back later than this run waits. */
class Later extends Error {
  constructor(message, seconds) {
    super(message);
    this.seconds = seconds;
  }
}

/** Seconds that an answer asks to wait, or null. */
export function retryAfter(value, now = Date.now()) {
  if (!value) return null;
  const seconds = /^[0-9]+$/.test(value) ? Number(value) : (Date.parse(value) - now) / 1000;
  return Number.isFinite(seconds) ? Math.min(Math.max(0, seconds), 30 * DAY) : null;
}

export class Server {
  /** `patience`: seconds that a request may wait in all while the server is down or overloaded. */
  constructor(url, patience) {
    const { protocol, hostname } = new URL(url);
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
    must(protocol === "https:" || (protocol === "http:" && here), "the address must be https; plain http is for this machine only");
    this.url = url.replace(/\/+$/, "");
    this.patience = patience;
  }

  /** {status, headers, body}; the same request again while the answer is "not now". */
  async call(path, { limit = LARGEST_ANSWER, once = false, ...options } = {}) {
    let waited = 0;
    for (let pause = 0.5; ; pause *= 2) {
      let [wait, why] = [pause * (0.5 + Math.random()), "no answer"];
      try {
        const answer = await this.callOnce(path, limit, options);
        if (!NOT_NOW.includes(answer.status)) return answer;
        why = `${answer.status} ${words(answer).error ?? ""}`;
        wait = Math.max(wait, retryAfter(answer.headers["retry-after"]) ?? 0);
      } catch (error) {
        if (error instanceof RangeError) throw error;
        if (/CERT|SIGNATURE|ALTNAME/.test(error.code)) throw new Error(`TLS certificate not trusted: ${error.message}`);
        why = `no answer: ${error.message || error.code}`;
      }
      waited += wait;
      if (once || waited > this.patience) throw new Later(`${path}: ${why}`, wait);
      await sleep(wait * 1000);
    }
  }

  /** One request on a connection of its own; redirects are not followed. */
  async callOnce(path, limit, { body, ...options }) {
    const { request } = this.url.startsWith("https:") ? https : http;
    const response = await new Promise((resolve, reject) => {
      const headers = { "accept-encoding": "gzip", ...(body && { "content-length": body.length }), ...options.headers };
      const signal = AbortSignal.timeout(60_000);
      const asked = request(this.url + path, { ...options, headers, agent: false, signal }, resolve);
      asked.on("error", reject).end(body);
    });
    const isZipped = response.headers["content-encoding"] === "gzip";
    const parts = [];
    let size = 0;
    for await (const part of isZipped ? pipeline(response, createGunzip(), () => {}) : response) {
      size += part.length; // of what is unpacked
      if (size > limit) throw new RangeError(`${path} answers with more than ${limit} bytes`);
      parts.push(part);
    }
    return { status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) };
  }

  async json(path) {
    const answer = await this.call(path);
    must(answer.status === 200, `${path}: ${answer.status} ${words(answer).message ?? ""}`);
    return words(answer);
  }

  async enrol(code) {
    const options = { method: "POST", headers: { "content-type": "application/json" }, body: Buffer.from(JSON.stringify({ code })) };
    const answer = await this.call("/v1/enrol", { ...options, once: true }); // a code is good for one phone
    must(answer.status === 201, `not enrolled: ${words(answer).message}`);
    return words(answer).secret;
  }

  /** The answers to what was blinded for a key; to the same again they are the same. */
  async signed(secret, key, sent) {
    const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
    const body = Buffer.from(JSON.stringify({ key: keyId(key), blinded: sent }));
    const answer = await this.call("/v1/tokens", { method: "POST", headers, body });
    const again = answer.status === 401 ? ": enrol with --anew and another --code" : "";
    must(answer.status === 200, `no tokens: ${answer.status} ${words(answer).error}${again}`);
    return words(answer).signatures;
  }

  /** The current broadcast if it is another than the one in hand. What is in hand is never sent. */
  async broadcast(heldDigest) {
    const published = (await this.json("/v1/digest")).sha256;
    if (published === heldDigest) return null;
    const answer = await this.call("/v1/broadcast", { limit: LARGEST_BROADCAST });
    must(answer.status === 200, `broadcast: ${answer.status}`);
    const digest = sha256(answer.body).toString("hex");
    const isPublished = digest === published || digest === (await this.json("/v1/digest")).sha256;
    must(isPublished, "these are not the bytes whose digest the server publishes");
    return digest === heldDigest ? null : { digest, data: answer.body };
  }

  async report(token, bytes) {
    const headers = { authorization: `Token ${token}`, "content-type": "application/octet-stream" };
    return this.call("/v1/report", { method: "POST", headers, body: bytes });
  }
}

function words({ body }) {
  try {
    return JSON.parse(body.toString()) ?? {};
  } catch {
    return {};
  }
}

// A visit

class State {
  constructor(path) {
    this.path = path;
    this.values = {
      secret: null, tokens: {}, held: null, refusedSince: null, report: null, token: null, drawn: null, charged: [], notBefore: 0,
    };
    if (path && existsSync(path)) Object.assign(this.values, JSON.parse(readFileSync(path, "utf8")));
  }

  /** On the disk before anything goes on. */
  keep(values) {
    Object.assign(this.values, values);
    if (!this.path) return;
    const file = openSync(`${this.path}.new`, "w", 0o600);
    writeFileSync(file, JSON.stringify(this.values, null, 1));
    fsyncSync(file);
    closeSync(file);
    renameSync(`${this.path}.new`, this.path);
  }
}

/** Rounds and digests of the broadcasts before `end`, in pages that begin where many phones ask for one. */
async function allDigests(server, first, end) {
  const found = [];
  let start = first - (first % 1024);
  for (let n = 0; n < 64 && start < end; n++) {
    const { digests } = await server.json(`/v1/digests?from=${start}`);
    if (digests.length === 0 || digests.at(-1)[0] < start) break;
    found.push(...digests);
    start = digests.at(-1)[0] + 1;
  }
  return found.filter(([round]) => round < end);
}

/** Throw unless a broadcast may take the place of the one in hand. */
async function checkContinues(server, broadcast, state, now) {
  const { held, refusedSince } = state.values;
  const ahead = broadcast.round - held.round;
  const inReach = ahead > 0 && ahead <= 1 << 20;
  let continued = continues(broadcast.history, held);
  if (continued === null && inReach) {
    const listed = await allDigests(server, held.round, broadcast.round);
    continued = continuesBy(listed, broadcast.history.chain, held);
  }
  if (inReach && continued) return;
  if (refusedSince !== null && now - refusedSince > 7 * DAY) return; // it may have been restored from a backup
  if (refusedSince === null) state.keep({ refusedSince: now });
  throw new Error(
    `round ${broadcast.round} does not continue round ${held.round}: a stale copy, a server that was set back, or a ` +
      `fork. Compare ${held.digest} with /v1/digests.`,
  );
}

/** Throw unless the owner's limits allow a report of this ε now. */
function checkLedger(epsilon, charged, given, now) {
  const today = charged.filter(([when]) => Math.floor(when / DAY) === Math.floor(now / DAY));
  const spent = (some) => sum(some.map(([, each]) => each));
  must(spent(today) + epsilon <= given.day, `epsilon ${epsilon} is beyond what is left of this day's ${given.day}`);
  must(spent(charged) + epsilon <= given.life, `epsilon ${epsilon} is beyond what is left of this phone's ${given.life}`);
  const last = Math.max(...charged.map(([when]) => when), -Infinity);
  must(now - last >= given.hours * 3600, `the last report was less than ${given.hours} hours ago`);
}

/** A token of this phone's region that may be spent, or null: those that there are were signed too lately. */
async function tokenFor(server, { keys }, state, now, given) {
  const { secret, tokens } = state.values;
  const ours = keys.filter(({ region }) => region === secret.split(".")[0]);
  must(ours.length, "the broadcast lists no key of this phone's server");
  const ready = ours.flatMap((key) => tokens[keyId(key)]?.signed ?? []).filter((each) => given.now || each.ready <= now);
  if (ready.length) return ready[0].token;
  const key = ours.at(-1);
  const mine = tokens[keyId(key)] ?? { blindings: range(key.tokens, () => newBlinding(key)) };
  if (mine.signed) {
    must(mine.signed.length, "the tokens of this period are spent; there are others in the next");
    return null;
  }
  state.keep({ tokens: { ...tokens, [keyId(key)]: mine } }); // before the server is asked
  const answers = await server.signed(secret, key, mine.blindings.map((each) => blinded(key, each)));
  must(answers?.length === mine.blindings.length, "one signature for each token");
  const from = now + 3600 * (4 + (24 * below(new SystemWords(), 2 ** 32)) / 2 ** 32);
  const signed = mine.blindings.map((each, i) => ({ token: unblinded(key, each, answers[i]), ready: from }));
  state.keep({ tokens: { ...tokens, [keyId(key)]: { signed } } });
  return given.now ? signed[0].token : null;
}

const without = (tokens, spent) =>
  Object.fromEntries(Object.entries(tokens).map(([id, { signed, ...rest }]) => [id, { ...rest, ...(signed && { signed: signed.filter(({ token }) => token !== spent) }) }]));

/** One visit to the server; a line that says what came of it. */
export async function visit(server, state, given) {
  const now = Date.now() / 1000;
  must(now >= state.values.notBefore, `the server asked to wait another ${Math.ceil(state.values.notBefore - now)} s`);
  if (state.values.secret === null || given.anew) {
    must(given.code, "to enrol, a phone needs a --code");
    const secret = await server.enrol(given.code);
    state.keep({ secret, tokens: {}, held: null, refusedSince: null, report: null, token: null, drawn: null }); // what was charged stays
  }
  const inHand = state.values.held;
  const toDraw = inHand?.asks && state.values.drawn !== inHand.round; // it was too soon, say
  const fetched = await server.broadcast(toDraw ? null : inHand?.digest);
  if (fetched === null) {
    if (state.values.refusedSince !== null) state.keep({ refusedSince: null });
  } else {
    const broadcast = readBroadcast(fetched.data);
    checkBroadcast(broadcast);
    const { round, history, request } = broadcast;
    if (fetched.digest !== inHand?.digest) {
      if (inHand !== null) await checkContinues(server, broadcast, state, now);
      const held = { round, digest: fetched.digest, chain: history.chain, asks: request !== null };
      state.keep({ held, refusedSince: null, report: null });
    }
    if (request !== null) {
      checkRequest(request, answerLength(broadcast), given.epsilon);
      checkLedger(request.epsilon, state.values.charged, given, now);
      const token = await tokenFor(server, broadcast, state, now, given);
      if (token === null) return `round ${round}: a token is spent hours after it was signed`;
      const report = drawReport(broadcast, given.history, token).toString("hex");
      const tokens = without(state.values.tokens, token); // it goes with these bytes and no others
      state.keep({ report, token, tokens, drawn: round, charged: [...state.values.charged, [now, request.epsilon]] });
    }
  }
  const { token, report, held } = state.values;
  if (report === null) return `round ${held.round}: no report to send`;
  if (!given.now) await sleep(1000 * (30 + (90 * below(new SystemWords(), 2 ** 32)) / 2 ** 32));
  const bytes = Buffer.from(report, "hex");
  const answer = await server.report(token, bytes);
  const said = `round ${held.round}: ${bytes.length} bytes, ${answer.status} ${words(answer).status ?? words(answer).error}`;
  state.keep({ report: null, token: null });
  must([200, 201, 409, 410].includes(answer.status), `${said}: ${words(answer).message}`);
  return said;
}

async function main() {
  const defaults = { history: "", epsilon: "1", day: "1", life: "1", hours: "20", patience: "120", now: false, anew: false };
  const names = ["server", "code", "state", ...Object.keys(defaults)];
  const options = Object.fromEntries(names.map((name) => [name, { type: typeof (defaults[name] ?? "") }]));
  const values = { ...defaults, ...parseArgs({ options }).values };
  must(values.server, "--server is missing");
  const number = (name) => Number(values[name]);
  const state = new State(values.state);
  const given = {
    code: values.code, now: values.now, anew: values.anew, history: values.history.split(",").filter((name) => name),
    epsilon: number("epsilon"), day: number("day"), life: number("life"), hours: number("hours"),
  };
  try {
    console.log(await visit(new Server(values.server, number("patience")), state, given));
  } catch (error) {
    if (!(error instanceof Later)) throw error;
    state.keep({ notBefore: Date.now() / 1000 + error.seconds });
    const kept = state.values.report === null ? "" : " The report is kept; the same bytes will be sent.";
    console.error(`${error.message}. Come back in ${Math.ceil(error.seconds)} s.${kept}`);
    process.exitCode = 75; // try again later
  }
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  main().catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}
