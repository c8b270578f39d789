#!/usr/bin/env node
// `node check.js [FOLDER [PORT.js ...]]` calls a port with every input of a corpus, and compares all that comes out.
// A port exports functions by the names of the corpus. They are handed arguments and environment, return the result or what
// is held afterwards, and throw a RangeError that names the argument which they refuse. Where none is given it is the one
// beside this file: the rules once more, written in JavaScript. README.md has the format.
"use strict";
const fs = require("fs"), path = require("path"), { isDeepStrictEqual } = require("util");
const [folder = __dirname, ...given] = process.argv.slice(2), archives = {};
const own = ["batches", "shapes", "copies"].map((topic) => path.join(__dirname, `port_${topic}.js`));
const port = Object.assign({}, ...(given.length ? given : own).map((name) => require(path.resolve(name))));
const read = (name) => fs.readFileSync(path.join(folder, name));
const json = (name) => JSON.parse(read(name), (_, x) => (x?.key ? loaded(x) : x));

function loaded({ dtype, shape, npz, offset }) { // the elements in the place of a reference to them
  const file = (archives[npz] ??= read(npz)), size = (/\d+/.exec(dtype) ?? 8) / 8, length = shape.reduce((a, b) => a * b, 1);
  const small = (at) => (dtype.startsWith("int") ? file.readIntLE(at, size) : file.readUIntLE(at, size));
  const element = (_, i) => (size < 8 ? small(offset + i * size) : Number(file.readBigInt64LE(offset + i * size)));
  return { dtype, shape, data: Array.from({ length }, element) };
}

function difference(found, wanted, place) { // where they differ first, in words
  if (isDeepStrictEqual(found, wanted)) return "";
  const told = `${place} = ${JSON.stringify(found)}, but should be ${JSON.stringify(wanted)}`;
  if ([found, wanted].some((one) => one === null || typeof one !== "object")) return told;
  const names = new Set([...Object.keys(wanted), ...Object.keys(found)]);
  for (const name of names) {
    const inside = difference(found[name], wanted[name], `${place}.${name}`);
    if (inside) return inside;
  }
  return told;
}

function mistake({ arguments: inputs, environment, expected: { refused, ...wanted } }, call) { // in words, or nothing
  const [[name, value]] = Object.entries(refused ? { refused } : wanted);
  try {
    return difference(call(inputs, environment), value, name);
  } catch (error) {
    const right = refused && error instanceof RangeError && error.message.includes(refused.argument.split(/[[.]/)[0]);
    return right ? "" : error.stack;
  }
}

const index = json("index.json"), vectors = index.files.flatMap(({ file }) => json(file).vectors), unknown = {};
if (index.schema !== 1) throw new Error(`schema = ${index.schema}, but should be 1`);
if (index.vectors !== vectors.length) throw new Error(`vectors = ${vectors.length}, but should be ${index.vectors}`);
let passed = 0, failed = 0;
for (const vector of vectors) {
  const { function: name, id } = vector, isKnown = Object.hasOwn(port, name), told = isKnown && mistake(vector, port[name]);
  if (!isKnown) unknown[name] = 1 + (unknown[name] ?? 0);
  else if (!told) passed++;
  else failed++, console.log(`${name} ${id}: ${told}`);
}
for (const [name, count] of Object.entries(unknown)) console.log(`not checked: ${count} of ${name}`);
console.log(`${passed} of ${passed + failed} pass`);
process.exitCode = passed && !failed ? 0 : 1;
