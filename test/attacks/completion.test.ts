import { spawn, spawnSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { PROGRAM } from "../cli/program.ts";

const COMMAND = "touch pwned";
/** Names of worker files that a shell would run, if any script evaluated them, and what a terminal would obey. */
const HOSTILE = [
  `$(${COMMAND})`,
  `\`${COMMAND}\``,
  `good; ${COMMAND} ;`,
  `good\n${COMMAND}\n`,
  `good\t$(${COMMAND})`,
  `'$(${COMMAND})'`,
  `"; ${COMMAND}; "`,
  `\${IFS}$(${COMMAND})`,
  `good && ${COMMAND}`,
  `good|${COMMAND}`,
  `<(${COMMAND})`,
  "\u001b]0;title\u0007\u001b[31mgood",
  "good\u009b31m",
  "go od",
  "*",
  "~root",
  "!!",
  "--json",
];

let base: string;
let dir: string;
let env: Record<string, string>;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "corral-completion-"));
  dir = join(base, "project");
  await mkdir(join(dir, "workers"), { recursive: true });
  await mkdir(join(base, "bin"));
  await writeFile(join(dir, "corral.yaml"), "version: 1\n");
  for (const name of ["good", "gold", ...HOSTILE]) {
    const text = `---\ndescription: "$(${COMMAND})"\ncommand: [x]\n---\n`;
    await writeFile(join(dir, "workers", `${name}.worker`), text);
  }
  await writeFile(join(base, "bin/corral"), `#!/bin/sh\nexec '${process.execPath}' '${PROGRAM}' "$@"\n`);
  await chmod(join(base, "bin/corral"), 0o755);
  env = {
    PATH: `${join(base, "bin")}:${process.env.PATH}`,
    HOME: join(base, "home"),
    CORRAL_STATE_DIR: join(base, "state"),
    DOCKER_HOST: "unix:///nowhere/docker.sock",
    TERM: "xterm",
  };
  await mkdir(join(base, "home"));
});
afterAll(() => rm(base, { recursive: true, force: true }));
beforeEach(() => rm(join(dir, "pwned"), { force: true }));

const run = (program: string, ...args: string[]) =>
  spawnSync(program, args, { cwd: dir, env, encoding: "utf8", timeout: 60_000 });

const answer = (...words: string[]): string[] => run("corral", "complete", "zsh", "--", ...words).stdout.split("\n");

const SHELLS = ["bash", "zsh", "fish"] as const;
/** Why a shell is not tried; null: it is. */
const missing = (shell: string): string | null =>
  spawnSync(shell, ["-c", "true"], { cwd: tmpdir() }).status === 0 ? null : `${shell} is not installed on this machine`;

/** What a shell offers for a line, asked in the way that a key press does as far as it can be done without a terminal. */
function offered(shell: (typeof SHELLS)[number], ...words: string[]): string[] {
  const script = {
    bash: `eval "$(corral completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _corral; printf '%s\\n' "\${COMPREPLY[@]}"`,
    zsh: `compdef() { : }; compadd() { print -rl -- $found }; eval "$(corral completion zsh)"; words=("$@"); CURRENT=$#; _corral`,
    fish: "corral completion fish | source; complete -C (string join ' ' -- $argv)",
  }[shell];
  const flags = { bash: ["--norc", "-c", script, "-"], zsh: ["-f", "-c", script, "-"], fish: ["-N", "-c", script] }[
    shell
  ];
  const { stdout, stderr } = run(shell, ...flags, ...words);
  expect(stderr).toBe("");
  return stdout
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => line.split("\t")[0] ?? "")
    .sort();
}

describe("corral complete", () => {
  it("offers only names that no shell reads as anything but a word, whatever the files are called", () => {
    expect(answer("run", "").sort()).toEqual(["", "gold", "good", "words"]);
    expect(answer("tool", "--worker", "").sort()).toEqual(["", "gold", "good", "words"]);
  });

  it("follows the program: commands, options, sets of values, paths, and what is after --", () => {
    const words = (...line: string[]) => answer(...line).map((each) => each.split("\t")[0]);
    expect(words("tran")).toEqual(["words", "transcripts", ""]);
    expect(words("fleet", "re").sort()).toEqual(expect.arrayContaining(["report", "results", "resume", "retry"]));
    expect(words("run", "--appr")).toContain("--approve");
    expect(words("run", "--approve", "auto")).toEqual(["words", "auto_deny", ""]);
    expect(words("run", "--approve=auto")).toEqual(["words", "--approve=auto_deny", ""]);
    expect(words("run", "--policy", "unt")).toEqual(["words", "untrusted", ""]);
    expect(words("-C", "/nowhere", "run", "")).toEqual(["words", ""]);
    expect(words("run", "--attach", "x")).toEqual(["files", ""]);
    expect(words("check", "--project", "")).toEqual(["folders", ""]);
    expect(words("run", "good", "--", "")).toEqual(["files", ""]);
    expect(words("")).not.toContain("complete");
  });

  it("fails at nothing, says nothing on standard error, asks no Engine, and makes no state", async () => {
    for (const line of [
      [],
      [""],
      ["--"],
      ["x", "y", "z"],
      ["run", "--project=$(x)", ""],
      ["fleet", "show", ""],
      ["changes", "apply", ""],
      ["grants", "revoke", ""],
      ["run", "--continue", ""],
      ["--project", "/dev/null", "run", ""],
      ["run", "\u001b[31m"],
    ]) {
      const { status, stderr, stdout } = run("corral", "complete", "bash", "--", ...line);
      expect([line, status, stderr]).toEqual([line, 0, ""]);
      expect(stdout).toMatch(/^(words|files|folders)\n/);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be there.
      expect(stdout).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/);
    }
    expect((await readdir(base)).sort()).toEqual(["bin", "home", "project"]);
  });
});

describe.each(SHELLS)("%s", (shell) => {
  const why = missing(shell);
  it.skipIf(why !== null)(
    `offers the workers, and runs nothing of their names${why === null ? "" : `: ${why}`}`,
    async () => {
      expect(offered(shell, "corral", "run", "go")).toEqual(["gold", "good"]);
      expect(offered(shell, "corral", "run", "--approve", "auto")).toEqual(["auto_deny"]);
      expect(offered(shell, "corral", "fleet", "resu")).toEqual(["results", "resume"]);
      const value = offered(
        shell,
        "corral",
        "run",
        ...(shell === "bash" ? ["--approve", "=", "auto"] : ["--approve=auto"]),
      );
      expect(value).toEqual([shell === "bash" ? "auto_deny" : "--approve=auto_deny"]);
      expect(await readdir(dir)).not.toContain("pwned");
    },
  );
});

describe("a bash at a terminal", () => {
  const why =
    missing("bash") ?? (spawnSync("script", ["-V"]).status === 0 ? null : "script is not installed on this machine");
  it.skipIf(why !== null)(
    `completes by the tab key, and runs nothing of the names${why === null ? "" : `: ${why}`}`,
    async () => {
      const child = spawn("script", ["-qec", "bash --norc --noprofile -i", "/dev/null"], {
        cwd: dir,
        env,
        stdio: "pipe",
      });
      let seen = "";
      child.stdout.on("data", (piece: Buffer) => {
        seen += piece.toString();
      });
      const waitFor = async (text: string) => {
        for (let tries = 0; tries < 300 && !seen.includes(text); tries += 1)
          await new Promise((done) => setTimeout(done, 50));
        expect(seen).toContain(text);
      };
      try {
        child.stdin.write('PS1="ready> "; eval "$(corral completion bash)"; echo is"-loaded"\n');
        await waitFor("is-loaded");
        child.stdin.write("echo corral; corral run \t\t\t");
        await waitFor("gold");
        await waitFor("good");
        child.stdin.write("\u0015corral transc\t");
        await waitFor("corral transcripts ");
      } finally {
        child.kill("SIGKILL");
      }
      expect(await readdir(dir)).not.toContain("pwned");
    },
  );
});
