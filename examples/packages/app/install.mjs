// The image of this worker has no npm, so the program does what `npm ci` does: it fetches and unpacks what the lock file names.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Corral sets it: the registry as the cell reaches it, in plain HTTP. Corral speaks TLS to the registry.
const registry = process.env.npm_config_registry;
const lock = JSON.parse(readFileSync("/app/package-lock.json", "utf8"));

for (const [place, { resolved }] of Object.entries(lock.packages)) {
  if (resolved === undefined) continue;
  const answer = await fetch(new URL(new URL(resolved).pathname.slice(1), registry));
  if (!answer.ok) throw new Error(`${resolved}: ${answer.status} ${await answer.text()}`);
  const folder = `/tmp/${place}`;
  mkdirSync(folder, { recursive: true });
  execFileSync("tar", ["-xz", "--strip-components=1", "-C", folder], {
    input: Buffer.from(await answer.arrayBuffer()),
  });
  console.log(`installed ${place}`);
}

const isNumber = createRequire("/tmp/")("is-number");
console.log(`"7" is a number: ${isNumber("7")}`);

for (const [method, path] of [
  ["GET", "left-pad/-/left-pad-1.3.0.tgz"],
  ["POST", "is-number"],
]) {
  const answer = await fetch(new URL(path, registry), { method });
  console.log(`${method} ${path}: ${answer.status}`);
}
