import fs from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { findGit, type GitCommand, runGit } from "../../src/git/git-program.ts";
import { never } from "./worker-side.ts";

let home: string;

beforeEach(() => {
  home = fs.mkdtempSync(join(os.tmpdir(), "corral-home-"));
});
afterEach(() => fs.rmSync(home, { recursive: true, force: true }));

/** A program in the place of git, which is given all that git would be given. */
function standIn(script: string): string {
  const path = join(home, "git");
  fs.writeFileSync(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return path;
}

async function run(path: string, more: Partial<GitCommand> = {}) {
  const command = {
    gitDir: "/g",
    args: ["x"],
    protocol: "https",
    signal: never,
    timeoutMs: 30_000,
    maxOutputBytes: 100_000,
  } as const;
  return await runGit({ path, home }, { ...command, ...more });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

describe("git, as Corral starts it", () => {
  it("is the system's", async () => {
    expect(await findGit()).toMatch(/^\/.*\/git$/);
  });

  it("has no variable of Corral's own environment, and no configuration but Corral's", async () => {
    process.env.CORRAL_TEST_SECRET = "leaked";
    process.env.GIT_DIR = "/elsewhere";
    try {
      const { stdout } = await run(standIn("env"), { env: { MORE: "1" } });
      const names = stdout
        .toString()
        .split("\n")
        .map((line) => line.split("=")[0] ?? "");
      expect(names.filter((name) => name !== "" && !["PWD", "_", "SHLVL", "OLDPWD"].includes(name)).toSorted()).toEqual(
        [
          "GIT_ALLOW_PROTOCOL",
          "GIT_ATTR_NOSYSTEM",
          "GIT_CONFIG_GLOBAL",
          "GIT_CONFIG_NOSYSTEM",
          "GIT_CONFIG_SYSTEM",
          "GIT_LITERAL_PATHSPECS",
          "GIT_NO_REPLACE_OBJECTS",
          "GIT_OPTIONAL_LOCKS",
          "GIT_TERMINAL_PROMPT",
          "HOME",
          "LC_ALL",
          "MORE",
          "PATH",
          "TZ",
          "XDG_CONFIG_HOME",
        ],
      );
      expect(stdout.toString()).not.toContain("leaked");
    } finally {
      delete process.env.CORRAL_TEST_SECRET;
      delete process.env.GIT_DIR;
    }
  });

  it("is told by every command that hooks, monitors and helpers are none", async () => {
    const { stdout } = await run(standIn(`printf '%s\\n' "$@"`));
    const words = stdout.toString().trim().split("\n");
    for (const word of [
      "--git-dir=/g",
      "core.hooksPath=/dev/null",
      "core.fsmonitor=false",
      "protocol.ext.allow=never",
      "credential.helper=",
      "protocol.https.allow=always",
    ])
      expect(words).toContain(word);
    expect(words.at(-1)).toBe("x");
  });

  it("is ended with all that it started, at its time limit, on too much output, and when it is cancelled", async () => {
    const endless = "sleep 1000 & echo $! > pid; echo started; while :; do sleep 1; done";
    const child = (): number => Number(fs.readFileSync(join(home, "pid"), "utf8"));

    expect(await run(standIn(endless), { timeoutMs: 1000 })).toMatchObject({ status: null, timedOut: true });
    await expect.poll(() => isAlive(child())).toBe(false);

    const much = "sleep 1000 & echo $! > pid; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxx; done";
    const { cut, stdout } = await run(standIn(much), { maxOutputBytes: 1000 });
    expect([cut, stdout.length]).toEqual([true, 1000]);
    await expect.poll(() => isAlive(child())).toBe(false);

    const stop = new AbortController();
    const running = run(standIn(endless), { signal: stop.signal });
    setTimeout(() => stop.abort(new Error("enough")), 1000);
    await expect(running).rejects.toThrow("enough");
    await expect.poll(() => isAlive(child())).toBe(false);
  });

  it("that does not heed being asked to end is ended all the same", async () => {
    const deaf = "trap '' TERM; while :; do sleep 1; done";
    expect(await run(standIn(deaf), { timeoutMs: 200 })).toMatchObject({ timedOut: true });
  });
});
