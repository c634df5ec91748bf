import { execFile } from "node:child_process";
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OTHER } from "../other-user.ts";
import { giveGate, giveGateTo } from "../tiers/give-gate.ts";

/** Commands of a page, and what the page says that they print. */
export interface Step {
  readonly commands: string;
  /** Null: the page shows nothing. */
  readonly shown: string | null;
  readonly line: number;
}

const FENCE = /^(?:<!-- (not run on this page: [^\n]+) -->\n\n)?```(\w+)\n([\s\S]*?)^```$/gm;

/** The `sh` blocks of a page in their order. A `text` block that follows one is its output. */
export function stepsOf(page: string): Step[] {
  const steps: Step[] = [];
  let open = false;
  for (const { index, 1: leftOut, 2: language, 3: text = "" } of page.matchAll(FENCE)) {
    const last = steps.at(-1);
    if (language === "text" && open && last !== undefined) steps[steps.length - 1] = { ...last, shown: text };
    open = language === "sh" && leftOut === undefined;
    if (open) steps.push({ commands: text, shown: null, line: page.slice(0, index).split("\n").length });
  }
  return steps;
}

/** As {@link OTHER}, with a Node that it can start. `line`: the beginning of a command line, with this environment. */
export interface AsUser {
  readonly node: string;
  /** Whether Corral has never run for this user. */
  readonly isNew: boolean;
  readonly line: (env: Readonly<Record<string, string>>) => Promise<string[]>;
}

const MARK = "---- end of step ----";

/**
 * Runs all steps in one shell, in an empty folder, with `program` as `corral`; returns what each printed on both streams, in
 * the order in which it came.
 */
export async function runSteps(steps: readonly Step[], program: string, asUser?: AsUser): Promise<string[]> {
  const dir = await mkdtemp(join(tmpdir(), "corral-reader-"));
  try {
    const [bin, stateDir, home] = [join(dir, "bin"), join(dir, "state"), join(dir, "home")];
    await mkdir(bin);
    await mkdir(home);
    await giveGate(stateDir);
    await writeFile(join(bin, "corral"), `#!/bin/sh\nexec '${asUser?.node ?? process.execPath}' '${program}' "$@"\n`);
    await chmod(join(bin, "corral"), 0o755);
    const script = steps.map(({ commands }) => `${commands}\necho '${MARK}'\n`).join("");
    // Where the Engine is can be in the home directory of the user who runs the test.
    const docker = process.env.DOCKER_CONFIG ?? join(process.env.HOME ?? "/", ".docker");
    const env = {
      ...process.env,
      PATH: `${bin}:${process.env.PATH}`,
      CORRAL_STATE_DIR: stateDir,
      NO_COLOR: "1",
      HOME: home,
      DOCKER_CONFIG: docker,
    };
    const own = { PATH: env.PATH, CORRAL_STATE_DIR: stateDir, NO_COLOR: "1", HOME: home };
    const [file = "", ...words] = [
      ...(asUser === undefined ? [] : await asUser.line(own)),
      "sh",
      "-c",
      `exec 2>&1\n${script}`,
    ];
    if (asUser !== undefined) {
      await rm(stateDir, { recursive: true });
      if (!asUser.isNew) await giveGateTo(stateDir, OTHER);
      for (const path of [dir, home]) await chown(path, OTHER, OTHER);
    }
    const printed = await new Promise<string>((resolve) => {
      const shell = execFile(file, words, { cwd: home, env, timeout: 100_000 }, (_, stdout) => resolve(stdout));
      shell.stdin?.end();
    });
    return printed.split(`${MARK}\n`).slice(0, -1);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Ids, times, durations, versions and the reader's folder, as words: they differ each time. */
function constant(text: string): string {
  return text
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replace(/\b[0-9a-f]{12}\b/g, "ID")
    .replace(/(?<![\w.])\d+(\.\d+)?( ?(ms|s|min|m|h))\b( ago)?/g, "DURATION$4")
    .replace(/\b\d+\.\d+ (KiB|MiB)/g, "SIZE")
    .replace(/\b\d+ records/g, "N records")
    .replace(/Node \d+\.\d+\.\d+/g, "Node VERSION")
    .replace(/(\/[\w.-]+)+\/(?=desk\b)/g, "FOLDER/")
    .replace(/[ \t]+/g, " ")
    .replace(/\f/g, "")
    .trim();
}

/** True if the page shows what was printed. A line `…` of the page is any number of lines. */
export function isShown(printed: string, shown: string): boolean {
  const pattern = constant(shown)
    .split("\n")
    .map((line) =>
      line.trim() === "…" ? "(?:.*\\n)*?" : `${line.trimEnd().replace(/[$()*+.?[\\\]^{|}]/g, "\\$&")} *\\n`,
    )
    .join("");
  return new RegExp(`^${pattern}$`).test(`${constant(printed)}\n`);
}
