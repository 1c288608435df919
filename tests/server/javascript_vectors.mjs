/* Holds examples/client.mjs against tests/vectors; prints how many vectors of each kind it met, as JSON. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import * as client from "../../examples/client.mjs";

const file = (name) => readFileSync(new URL(`../vectors/${name}`, import.meta.url));
const vectors = (name) => JSON.parse(file(name).toString());
const met = {};
const meet = (name) => (met[name] = (met[name] ?? 0) + 1);

class GivenWords {
  constructor(words) {
    this.left = words.map(BigInt);
  }

  next() {
    assert(this.left.length, "more words taken than the vector has");
    return this.left.shift();
  }
}

function near(found, expected, relative, what) {
  const values = [found, expected].map((each) => [each].flat(Infinity));
  assert.equal(values[0].length, values[1].length, what);
  values[0].forEach((value, i) => {
    const told = values[1][i];
    assert(Math.abs(value - told) <= relative * Math.abs(told) + 1e-12, `${what}: ${value}, told ${told}`);
  });
}

/** A dense matrix of an answer. */
function dense({ D, cells }, columns) {
  return Array.from({ length: D / columns }, (_, row) => Array.from({ length: columns }, (__, i) => cells.get(row * columns + i) ?? 0));
}

for (const [name, told] of Object.entries(vectors("broadcasts.json"))) {
  const data = file(name);
  const read = client.readBroadcast(data);
  client.checkBroadcast(read);
  assert.equal(createHash("sha256").update(data).digest("hex"), told.sha256);
  for (const key of ["round", "apps", "settings", "request", "history"]) assert.deepEqual(read[key], told[key]);
  assert.deepEqual(read.Q, told.app_vectors);
  const damaged = Buffer.from(data);
  damaged[damaged.length - 1] ^= 1;
  assert.throws(() => client.readBroadcast(damaged), /damaged/);
  meet("broadcasts");
}

const history = vectors("history.json");
for (const { held, offered, continues } of history.files) {
  assert.equal(client.continues(client.readBroadcast(file(offered)).history, held), continues);
  meet("history");
}
for (const { held, first_told: first, last_told: last, continues } of history.long) {
  const links = history.links.slice(first, last + 1);
  const digests = links.map(({ round, digest }) => [round, digest]);
  const chain = links.at(-1).chain_of_the_next;
  assert.equal(client.continues({ digests, chain }, held), continues);
  const all = history.links.slice(0, last + 1).map(({ round, digest }) => [round, digest]);
  assert.equal(client.continuesBy(all, chain, held), true); // by the list of all digests
  meet("history");
}

const coinsOf = ({ signature }) => new client.Coins(Buffer.from(signature, "base64url"));

for (const one of vectors("tokens.json")) { // the numbers are those of blind_signatures.json
  assert.equal(client.keyId(one.key), one.id);
  assert.equal(client.blinded(one.key, one), one.blinded);
  assert.equal(client.unblinded(one.key, one, one.answer), one.token);
  const coins = new client.Coins(client.signatureOf(one.token));
  assert.deepEqual(one.words.map(() => String(coins.next())), one.words);
  assert.throws(() => client.unblinded(one.key, one, Buffer.alloc(256, 1).toString("base64url")), /another key/);
  meet("tokens");
  meet("blind_signatures");
}

const smooth = { region: "main", modulus: (15015n * (((1n << 2048n) / 15015n - 1n) | 1n)).toString(16), tokens: 1 };
for (let i = 0; i < 20; i++) { // no factor of what is blinded is seen
  const z = BigInt(`0x${Buffer.from(client.blinded(smooth, client.newBlinding(smooth)), "base64url").toString("hex")}`);
  for (const p of [3n, 5n, 7n, 11n, 13n]) assert.notEqual(z % p, 0n);
}

for (const one of vectors("coins.json")) {
  const coins = coinsOf(one);
  assert.deepEqual(one.words.map(() => String(coins.next())), one.words);
  assert.deepEqual(client.distinct(coinsOf(one), 5, 1600), one.distinct_5_of_1600);
  meet("coins");
}

const word = (i) => {
  const number = Buffer.alloc(8);
  number.writeBigUInt64LE(BigInt(i));
  return createHash("sha256").update("nextapp vector").update(number).digest().readBigUInt64LE();
};
{
  const told = vectors("gradient.json");
  const read = client.readBroadcast(file(told.broadcast));
  const { p, F } = client.gradient(told.history, read.Q, read.settings);
  near(p, told.user_vector, told.relative_tolerance, "p");
  near(F, told.gradient, told.relative_tolerance, "F");
  const words = new GivenWords(Array.from({ length: told.words_taken }, (_, i) => word(i)));
  const payload = client.harmony(client.answerOf(F), read.request, words, coinsOf(told));
  assert.equal(client.reportBytes("harmony", read.round, payload).toString("hex"), told.report);
  for (const { reading, user_vector: vector, gradient } of told.readings) {
    const other = client.gradient(told.history, read.Q, { ...read.settings, reading });
    near(other.p, vector, told.relative_tolerance, reading);
    near(other.F, gradient, told.relative_tolerance, reading);
  }
  meet("gradient");
}
{
  const told = vectors("transitions.json");
  const found = told.history.map((app) => (app === told.left_out ? null : app));
  near(dense(client.transitionVector(found, told.n_apps), told.n_apps + 1), told.transition_vector, 1e-12, "transitions");
  const whole = client.transitionVector(told.history, told.n_apps);
  for (const { signature, words, report } of told.reports) {
    const payload = client.walsh(whole, told.request, new GivenWords(words), coinsOf({ signature }));
    assert.equal(client.reportBytes("walsh", told.round, payload).toString("hex"), report);
  }
  meet("transitions");
}
{
  const told = vectors("launches.json");
  const { buckets, crowd } = client.readBroadcast(file(told.broadcast));
  assert.deepEqual(buckets, { n_buckets: told.n_buckets, salt: told.salt, slots: told.slots });
  for (const [name, bucket] of Object.entries(told.bucket_of)) assert.equal(client.bucketOf(name, buckets), bucket);
  assert.deepEqual(Object.fromEntries(client.launches(told.history, buckets).cells), told.launches);
  const rows = told.history.map((name) => told.slots.indexOf(told.bucket_of[name]));
  const found = client.rowsOf(told.history, { apps: [], buckets });
  assert.deepEqual(found, rows.map((row) => (row < 0 ? null : row)));
  for (const [key, values] of Object.entries(told.crowd)) near(crowd[key], values, 1e-12, key);
  meet("launches");
}

const walsh = vectors("walsh.json");
for (const { n, entry, place, sign } of walsh.places) {
  assert.equal(client.place(entry, n), place);
  assert.equal(client.placeSign(place), sign);
  meet("walsh");
}
for (const { n, seed, j, rows, signs } of walsh.codewords) {
  const words = client.walshWords(BigInt(seed), n, j + 1);
  rows.forEach((row, l) => {
    const turned = (j % 2 ** n) * 2 ** (l % n);
    assert.equal((words.rho[l] ^ (turned % 2 ** n)) ^ Math.floor(turned / 2 ** n), row);
    assert.equal((words.signs[j] >> BigInt(l)) & 1n ? 1 : -1, signs[l]);
  });
  meet("walsh");
}

for (const one of vectors("reports.json")) {
  const { mechanism, epsilon } = one.request;
  const answer = one.gradient
    ? client.answerOf(one.gradient)
    : { D: one.n_apps * (one.n_apps + 1), cells: new Map(one.shares.map(([row, column, share]) => [row * (one.n_apps + 1) + column, share])) };
  const words = new GivenWords(one.words);
  const payload = client.MECHANISMS[mechanism](answer, one.request, words, coinsOf(one));
  assert.equal(payload.toString("hex"), one.payload, mechanism);
  assert.equal(words.left.length, 0);
  assert.equal(client.reportBytes(mechanism, one.round, payload).toString("hex"), one.report);
  const coins = coinsOf(one);
  assert.deepEqual(one.coins.map(() => String(coins.next())), one.coins);
  const { k, m, floor, threshold } = one.constants;
  if (floor) assert.equal(String(client.harmonyFloor(epsilon, k)), floor);
  if (m) {
    assert.equal(client.nFavoured(epsilon, m), k);
    assert.equal(String(client.threshold(epsilon, k, m)), threshold);
  }
  meet(mechanism);
}

for (const { report } of vectors("bad-reports.json")) {
  const data = Buffer.from(report, "hex");
  const whole = data.length >= 20 && data.subarray(0, 3).toString("latin1") === "nR\x01";
  assert(!(whole && client.crc32(data.subarray(0, -4)) === data.readUInt32LE(data.length - 4)));
  meet("bad-reports");
}

console.log(JSON.stringify(met));
