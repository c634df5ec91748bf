import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";
import { PROGRAM } from "./program.ts";

let project: CliProject;

/** A title, in two parts; a cleared screen by 7 and by 8 bits; colours; the clipboard, and a command that does not end. */
const HOSTILE =
  "printf '\\033]0;ti'; sleep 0.2; printf 'tle\\007\\033[2J\\2332J\\302\\2332J\\033[31mred\\n'; printf '\\033]52;c;aGk=\\033\\\\\\033]0;end'";
// biome-ignore lint/suspicious/noControlCharactersInRegex: what would reach the terminal is what is looked for.
const CONTROLS = /\u001b\]|\u001b\[2J|\u0007|\u009b/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a style is what is looked for.
const STYLE = /\u001b\[[\d;]*m/g;

beforeAll(async () => {
  project = await cliProject({
    yaml: { version: 1, policy: "untrusted", sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } } },
    workers: {
      caller: { command: sh("echo printed; corral-call kid; sleep 0.5"), calls: ["kid"] },
      kid: { command: sh("sleep 0.3") },
      // Two streams have no order of their own, and nothing ends the line of the first.
      hostile: { command: sh(`{ ${HOSTILE}; } >&2; sleep 0.5; ${HOSTILE}`) },
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

  it("has a worker's control sequences as text, on both streams, and its colours end with it", async () => {
    const { status, raw } = await onTerminal("run hostile");
    expect([status, raw]).toEqual([0, expect.not.stringMatching(CONTROLS)]);
    // A style is set again where a piece begins.
    const unstyled = raw.replaceAll(STYLE, "");
    expect(unstyled.split("\\u{1b}]0;title\\u{7}\\u{1b}[2J\ufffd2J\\u{9b}2Jred")).toHaveLength(3);
    expect(unstyled.split("\\u{1b}]52;c;aGk=\\u{1b}\\\\u{1b}]0;end")).toHaveLength(3);
    expect(raw.slice(raw.lastIndexOf("\u001b[31m"))).toContain("\u001b[0m");
  });

  it.each([
    "run hostile 2>&1",
    "runs logs latest",
    "shell hostile < script",
    "tool exec @exec --worker hostile --approve approve_all",
  ])("has them as text with %s too", async (command) => {
    await writeFile(join(project.dir, "script"), HOSTILE);
    await writeFile(join(project.dir, "exec"), JSON.stringify({ command: HOSTILE }));
    const { raw } = await onTerminal(command);
    expect(raw).not.toMatch(CONTROLS);
    expect(raw).toContain("\\u{1b}]0;ti");
  });

  it("has them as they are with --raw, and bytes are exact in a pipe", async () => {
    expect((await onTerminal("run hostile --raw")).raw).toMatch(CONTROLS);
    const { text } = await onTerminal("run hostile 2> /dev/null | od -An -tx1 -v | tr -d ' \\n'");
    expect(text).toContain("1b5d303b7469746c65071b5b324a9b324ac29b324a1b5b33316d7265640a1b5d35323b");
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
