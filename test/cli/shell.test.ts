import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "./cli-project.ts";
import { PROGRAM } from "./program.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } },
    },
    workers: { w: { command: ["true"], sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] } } },
    folders: ["out"],
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

async function expectNothingLeft(): Promise<void> {
  expect(await project.cells()).toEqual([]);
  expect(await readdir(join(project.stateDir, "live"))).toEqual([]);
}

describe("corral shell, fed by a pipe", () => {
  it("runs what it reads in the worker's cell, keeps both streams apart, and ends as the shell does", async () => {
    const stdin = "id -u; ls /\ncat > /out/x <<'.'\nhere\n.\ncat /out/x; echo err >&2\nexit 5\n";
    const { status, stdout, stderr } = await project.built(["shell", "w"], { stdin });
    expect(stdout).toMatch(/^65532\n(.*\n)*out\n(.*\n)*here\n$/);
    expect(stderr).toBe("err\n");
    expect(status).toBe(5);
    await expectNothingLeft();
  });

  it.each([
    ["true", 0],
    ["kill -SEGV $$", 139],
    ["no-such-program", 127],
  ])("after `%s` ends with %i", async (stdin, status) => {
    expect(await project.corral(["shell", "w"], { stdin })).toMatchObject({ status });
  });

  it("loses nothing of what is long, whoever reads it late", async () => {
    const stdin = "seq 300000\n";
    const { child, ended } = project.start(["shell", "w"], { stdin });
    child.stdout?.pause();
    setTimeout(() => child.stdout?.resume(), 1500);
    const { status, stdout } = await ended;
    expect(status).toBe(0);
    expect(stdout.length).toBe(1_988_895);
    expect(stdout.endsWith("\n300000\n")).toBe(true);
  });

  it("is refused a worker that is not there, and ends with 2", async () => {
    expect(await project.corral(["shell", "nobody"])).toMatchObject({ status: 2 });
  });
});

/** The command line at a terminal of its own, which types what it is told and shows what comes. */
class AtTerminal {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #looks = new Set<() => void>();
  shown = "";

  constructor(args: readonly string[]) {
    const words = [process.execPath, PROGRAM, ...args].map((word) => `'${word}'`).join(" ");
    const script = ["--quiet", "--return", "--command", `stty rows 33 cols 99; exec ${words}`, "/dev/null"];
    const env = { ...process.env, CORRAL_STATE_DIR: project.stateDir, TERM: "xterm" };
    this.#child = spawn("script", script, { cwd: project.dir, env });
    this.#child.stdout.on("data", (chunk: Buffer) => {
      this.shown += chunk.toString();
      for (const look of this.#looks) look();
    });
  }

  type(keys: string): void {
    this.#child.stdin.write(keys);
  }

  /** Settles when these have come, in any order; what came up to there is forgotten. */
  async shows(...texts: readonly string[]): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<string>();
    const look = (): void => {
      if (!texts.every((text) => this.shown.includes(text))) return;
      this.#looks.delete(look);
      const end = Math.max(...texts.map((text) => this.shown.indexOf(text) + text.length));
      const before = this.shown.slice(0, end);
      this.shown = this.shown.slice(end);
      resolve(before);
    };
    this.#looks.add(look);
    look();
    return await promise;
  }

  async ended(): Promise<number | null> {
    if (this.#child.exitCode === null) await once(this.#child, "close");
    return this.#child.exitCode;
  }

  /** Its end hangs up, which ends the command line as well. */
  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

const terminals: AtTerminal[] = [];

/** One that is ended after the test, also where the test still waits for what it shows. */
function atTerminal(args: readonly string[]): AtTerminal {
  const terminal = new AtTerminal(args);
  terminals.push(terminal);
  return terminal;
}

afterEach(() => {
  for (const terminal of terminals.splice(0)) terminal.kill();
});

describe("corral shell, at a terminal", () => {
  it("is a terminal in the cell, of the same size and kind", async () => {
    const terminal = atTerminal(["shell", "w"]);
    // The quotes keep what is typed, which is shown as well, apart from what is printed.
    terminal.type("tty; stty size; echo kind=$TERM e''nd\r");
    const shown = await terminal.shows("end");
    expect(shown).toMatch(/\/dev\/pts\/0\r+\n33 99\r+\n/);
    expect(shown).toContain("kind=xterm");
    terminal.type("exit 6\r");
    expect(await terminal.ended()).toBe(6);
    await expectNothingLeft();
  });

  it("gives Ctrl-C to the program in the cell, and goes on", async () => {
    const terminal = atTerminal(["shell", "w"]);
    // Told by the program itself: before it is in the foreground a Ctrl-C is the shell's.
    terminal.type("sh -c 'echo beg\"\"un; exec sleep 4751'; echo not ' 'here\r");
    await terminal.shows("begun");
    terminal.type("\x03");
    // What was typed and not read yet is dropped with a Ctrl-C, so the shell must be back first. Its prompt may come before
    // the terminal shows the key.
    await terminal.shows("^C", "$ ");
    terminal.type("echo sta''tus=$?\r");
    const shown = await terminal.shows("status=");
    expect(shown).not.toContain("not  here");
    await terminal.shows("130");
    terminal.type("\x04");
    expect(await terminal.ended()).toBe(0);
    await expectNothingLeft();
  });
});
