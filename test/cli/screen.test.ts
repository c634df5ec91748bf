import { spawn } from "node:child_process";
import { stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";
import { PROGRAM } from "./program.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted", sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } } },
    workers: {
      caller: { command: sh("echo printed; corral-call kid; sleep 0.5"), calls: ["kid"] },
      kid: { command: sh("sleep 0.3") },
      // Another text each time: what does not change is not asked about.
      asks: {
        command: sh("cat /proc/sys/kernel/random/uuid > /out/asked; echo wrote"),
        sandbox: { zones: [{ name: "out", mode: "rw" }] },
      },
    },
    folders: ["out"],
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

/** On a terminal of 80 by 24 (util-linux `script` makes one); presses `keys` once `prompt` is read. */
async function onTerminal(command: string, prompt?: string, keys = "") {
  const program = `stty cols 80 rows 24; ${process.execPath} ${PROGRAM} ${command}`;
  const child = spawn("script", ["-qec", program, "/dev/null"], {
    cwd: project.dir,
    env: { ...process.env, TERM: "xterm", CORRAL_STATE_DIR: project.stateDir },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const { promise, resolve } = Promise.withResolvers<number | null>();
  child.once("close", resolve);
  let raw = "";
  let pressed = false;
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    raw += chunk;
    if (prompt === undefined || pressed || !raw.includes(prompt)) return;
    pressed = true;
    child.stdin.write(keys);
  });
  const status = await promise;
  return { status, raw, text: stripVTControlCharacters(raw).replaceAll("\r", "") };
}

const [ENTER, DOWN, CTRL_C] = ["\r", "\u001b[B", "\u0003"];

describe("corral run on a terminal", () => {
  it("draws the tree while it grows, below what the worker prints, and leaves it standing", async () => {
    const { status, text, raw } = await onTerminal("run caller");
    expect(text).toMatch(/▸ caller running/);
    expect(text).toMatch(/[·▸] kid (waiting|running)/);
    expect(text.match(/^printed$/gm)).toHaveLength(1);
    expect(text.trimEnd().split("\n").slice(-4).join("\n")).toMatch(
      /^✓ caller \d\.\ds\n│ {3}mounts: none\n└─ ✓ kid \d\.\ds\n {7}mounts: none$/,
    );
    // The cursor is hidden while it draws, and shown again at the end.
    expect(raw.lastIndexOf("\u001b[?25h")).toBeGreaterThan(raw.lastIndexOf("\u001b[?25l"));
    expect(status).toBe(0);
  });

  it("asks, and runs once somebody agrees", async () => {
    const { status, text } = await onTerminal("run asks", "Allow it?", `${DOWN}${ENTER}`);
    expect(text).toContain("Worker asks asks to write in /out/asked. Allow it?");
    expect(text).toMatch(/^wrote$/m);
    expect(status).toBe(0);
  });

  it("denies where somebody only presses Enter, and cancels on Ctrl-C", async () => {
    const denied = await onTerminal("run asks", "Allow it?", ENTER);
    expect(denied.text).toContain("⊘ asks denied");
    expect(denied.status).toBe(126);
    const cancelled = await onTerminal("run asks", "Allow it?", CTRL_C);
    expect(cancelled.text).toContain("■ asks cancelled");
    // The drawing leaves out why, for it is plain; not where what was changed is.
    for (const { text } of [denied, cancelled]) expect(text.match(/`corral changes show \w+`/g)).toHaveLength(1);
    expect(cancelled.status).toBe(130);
  });
});
