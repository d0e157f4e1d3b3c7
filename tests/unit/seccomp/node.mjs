// SPDX-License-Identifier: Apache-2.0
// Runs under the filter of cells: what node does beyond plain JavaScript.
import assert from "node:assert";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import crypto from "node:crypto";
import dns from "node:dns/promises";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { Worker } from "node:worker_threads";
import zlib from "node:zlib";

// (module (func (export "add") (param i32 i32) (result i32)
//   local.get 0 local.get 1 i32.add))
const bytes = Uint8Array.from([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3, 97, 100,
  100, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11,
]);
const { instance } = await WebAssembly.instantiate(bytes);
assert.equal(instance.exports.add(2, 3), 5);
new WebAssembly.Memory({ initial: 1, maximum: 100 }).grow(10);

const worker = new Worker("require('worker_threads').parentPort.postMessage(42)", { eval: true });
assert.deepEqual(await once(worker, "message"), [42]);

const server = http.createServer((request, response) => response.end("served"));
server.listen(0, "127.0.0.1");
await once(server, "listening");
const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
assert.equal(await answer.text(), "served");
server.close();
server.closeAllConnections();
assert.equal(await (await fetch("data:text/plain,hi")).text(), "hi");

assert.equal(execFileSync("cat", { input: "x" }).toString(), "x");
const child = spawn("sleep", ["60"]);
child.kill();
assert.deepEqual(await once(child, "exit"), [null, "SIGTERM"]);

const folder = fs.mkdtempSync(path.join(os.tmpdir(), "hutch-"));
const file = path.join(folder, "file");
await fs.promises.writeFile(file, "text");
fs.copyFileSync(file, file + ".copy");
assert.equal(await fs.promises.readFile(file + ".copy", "utf8"), "text");
await fs.promises.rm(folder, { recursive: true });

assert.ok(os.networkInterfaces().lo);
assert.ok(os.availableParallelism() >= 1);
assert.ok((await dns.lookup("127.0.0.1")).address);
assert.equal(crypto.randomBytes(8).length, 8);
assert.equal(zlib.gunzipSync(zlib.gzipSync("x")).toString(), "x");
console.error("all of it works");
