import { execFile } from "node:child_process";
import { chown, cp, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { asOther, started } from "../engine-user.ts";
import { nodeIn, OTHER } from "../other-user.ts";

const ROOT = join(import.meta.dirname, "../..");
const program = promisify(execFile);

let base: string;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "start-"));
  for (const part of ["package.json", "src", "scripts", "examples", "policies", "images", "templates"])
    await cp(join(ROOT, part), join(base, part), { recursive: true, filter: (path) => basename(path) !== ".work" });
  // Links, unless the checkout is on another disk.
  const [from, to] = [join(ROOT, "node_modules"), join(base, "node_modules")];
  await program("cp", ["-al", from, to]).catch(async () => {
    await rm(to, { recursive: true, force: true });
    await program("cp", ["-a", from, to]);
  });
  const example = join(base, "examples/inbox");
  const inside = (await readdir(example, { recursive: true })).map((path) => join(example, path));
  for (const path of [base, example, ...inside]) await chown(path, OTHER, OTHER);
});
afterAll(() => rm(base, { recursive: true, force: true }));

it("what `npm start` runs, for an ordinary user in the Engine's group: nothing gets into or out of a cell that should not", async () => {
  const env = { HOME: base, CORRAL_STATE_DIR: join(base, "s"), PATH: `${base}:/usr/bin:/bin`, NO_COLOR: "1" };
  const { ended } = started([...(await asOther(env)), nodeIn(base), join(base, "scripts/start.ts")], base);
  const { status, text } = await ended;
  expect(text).toContain("Nothing got into or out of a cell that should not have.");
  expect(status, text).toBe(0);
});
