import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { gateOf } from "../../../src/isolation/plan/plan.ts";
import { openRunc, type Runc } from "./runc.ts";

let runc: Runc;
let gate: string;
beforeAll(async () => {
  runc = await openRunc();
  gate = gateOf((await runc.plan({ command: ["true"] })).plan);
});
afterAll(() => runc[Symbol.asyncDispose]());

const MODULE = join(import.meta.dirname, "../../../src/isolation/runc/cells/launcher.ts");

/** What a process prints that is started by `prefix` and has the login 4242. */
async function printed(prefix: readonly string[], script: string): Promise<string> {
  const login = 'echo 4242 > /proc/self/loginuid; exec "$@"';
  const code = `const { asByTheEngine } = await import(${JSON.stringify(MODULE)}); ${script}`;
  const argv = ["-c", login, "sh", ...prefix, process.execPath, "--input-type=module", "-e", code, gate];
  return (await promisify(execFile)("sh", argv)).stdout;
}

const STARTS = `
const { spawnSync } = await import("node:child_process");
const [first, ...rest] = [...asByTheEngine(process.argv[1]), "cat", "/proc/self/loginuid"];
const { status, stdout, stderr } = spawnSync(first, rest, { encoding: "utf8" });
console.log(status + " " + stdout + stderr);`;

describe("a program of a cell that this process starts", () => {
  it("has no number of the user who logged in", async () => {
    expect(await printed([], STARTS)).toBe("0 4294967295\n");
  });

  it("does not start if the kernel refuses to change that number", async () => {
    const without = ["setpriv", "--bounding-set", "-audit_control", "--inh-caps", "-audit_control"];
    expect(await printed(without, STARTS)).toMatch(/^1 the number of the user who logged in cannot be hidden/);
  });

  it("does not start if this process cannot read what it passes on", async () => {
    const full = `
const { openSync } = await import("node:fs");
try { for (;;) openSync("/dev/null"); } catch {}
try { asByTheEngine(process.argv[1]); console.log("planned"); } catch (error) { console.log(error.code); }`;
    expect(await printed(["prlimit", "--nofile=200:200"], full)).toBe("EMFILE\n");
  });
});
