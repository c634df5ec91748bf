/* Started by exhausted-host.test.ts with a low limit of open files. Tries each operation with 0, 1, 2 … descriptors left. */
import fs from "node:fs";
import { join } from "node:path";
import { openHostFiles } from "../../../src/files/host/host-files.ts";
import { type Files, mountedPlace, type Place } from "../../../src/files/model/files.ts";
import { SandboxError } from "../../../src/sandbox/errors.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";

const MOST_LEFT = 14;
const [dir = ""] = process.argv.slice(2);
const mount = { name: "d", path: "/d" as VirtualPath, host: dir, mode: "rw" } satisfies Mount;
const place = (name: string): Place => mountedPlace([mount], `/d/${name}` as VirtualPath) as Place;

const OPERATIONS: Readonly<Record<string, (files: Files) => Promise<unknown>>> = {
  read: (files) => files.read(place("sub/f")),
  bytes: (files) => files.bytes(place("sub/f"), { maxBytes: 100 }),
  write: (files) => files.write(place("sub/f"), "old"),
  append: (files) => files.append(place("sub/f"), ""),
  edit: (files) => files.edit(place("sub/f"), [{ old: "old", new: "old" }]),
  copy: (files) => files.copy(place("tree"), place(`copy-${crypto.randomUUID()}`)),
  move: (files) => files.move(place("sub/f"), place("sub/f"), { overwrite: true }),
  delete: (files) => files.delete(place("sub/none/x"), { recursive: true }),
  mkdir: (files) => files.mkdir(place("sub/new")),
  list: (files) => files.list(place("tree"), { pattern: "**" }),
  stat: (files) => files.stat(place("sub/f")),
  resolve: (files) => files.resolve(place("sub/new/x")),
};

using files = openHostFiles([mount]);
for (const operation of Object.values(OPERATIONS)) await operation(files).catch(() => {});
const opened = (): number => fs.readdirSync("/proc/self/fd").length;
const wrong: string[] = [];
const ended = new Set<string>();
for (const [name, operation] of Object.entries(OPERATIONS)) {
  for (let left = 0; left <= MOST_LEFT; left++) {
    const before = opened();
    const taken: number[] = [];
    try {
      for (;;) taken.push(fs.openSync("/dev/null", "r"));
    } catch {
      for (const fd of taken.splice(0, left)) fs.closeSync(fd);
    }
    const answer = await operation(files).then(
      () => "done",
      (error: unknown) => (error instanceof SandboxError ? error.code : String(error)),
    );
    for (const fd of taken) fs.closeSync(fd);
    ended.add(`${name} ${answer}`);
    if (opened() !== before) wrong.push(`${name} with ${left} left: ${opened() - before} descriptors leak`);
    const content = fs.readFileSync(join(dir, "sub/f"), "utf8");
    if (content !== "old") wrong.push(`${name} with ${left} left: the file holds ${content}`);
    const rest = fs.readdirSync(dir, { recursive: true }).filter((path) => String(path).includes(".corral-unfinished"));
    if (rest.length > 0) wrong.push(`${name} with ${left} left: ${rest} is left behind`);
    for (const path of rest) fs.rmSync(join(dir, String(path)), { recursive: true });
  }
}
console.log(JSON.stringify({ wrong, ended: [...ended].sort() }));
