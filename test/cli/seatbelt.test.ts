import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { runOnMac, type SeatbeltOptions } from "../../src/cli/run/seatbelt.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { spellingFault } from "../../src/isolation/seatbelt/start.ts";
import { Profile } from "../isolation/seatbelt/policy-language.ts";

let dir: string;
beforeEach(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), "seatbelt-")));
  for (const name of ["in", "out", "out/.git", "out/.git/hooks", "elsewhere", "temporary"])
    await mkdir(join(dir, name));
  await writeFile(join(dir, "in/a"), "given\n");
  // It keeps what it was given, and puts only the one file out of reach that Corral's first process looks for.
  await standIn(`cp "$2" ${dir}/profile.sb\nrm "$7" && mkdir "$7" || exit 9`);
});
afterEach(async () => await rm(dir, { recursive: true, force: true }));

async function standIn(does: string): Promise<void> {
  await writeFile(join(dir, "sandbox-exec"), `#!/bin/sh\n${does}\nshift 2\nexec "$@"\n`, { mode: 0o755 });
}

interface Asked extends Partial<SeatbeltOptions> {
  readonly isRoot?: boolean;
  /** Called with what stops it. */
  readonly stopped?: (stop: () => void) => void;
}

async function ran(script: string, { isRoot = false, stopped, ...options }: Asked = {}) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const texts = [stdout, stderr].map(async (stream) => Buffer.concat(await stream.toArray()).toString());
  const terminal = {
    env: { HOME: dir, CORRAL_STATE_DIR: join(dir, "state"), SECRET: "of the user", SHOWN: "shown" },
    cwd: join(dir, "out"),
    stdin: { isTTY: true },
    stdout,
    stderr,
    onStop: (stop: (signal: NodeJS.Signals) => void) => {
      stopped?.(() => stop("SIGINT"));
      return () => {};
    },
    exit: (): never => {
      throw new Error("it was to end at once");
    },
  } as unknown as Terminal;
  const machine = {
    platform: "darwin",
    program: join(dir, "sandbox-exec"),
    temporary: join(dir, "temporary"),
    isRoot,
  } as const;
  const given = { policy: "seatbelt", words: ["sh", "-c", script], ...options };
  try {
    const status = await runOnMac(undefined, given, terminal, machine).catch((error: Error) => error.message);
    for (const stream of [stdout, stderr]) stream.end();
    const [out, err] = await Promise.all(texts);
    return { status, out, err };
  } finally {
    // Whatever came of it, nothing of it stays.
    expect(await readdir(join(dir, "temporary"))).toEqual([]);
  }
}

const shown = { ro: ["../in"], rw: ["."], apply: true };

describe("corral run --driver seatbelt, with a stand-in for macOS's sandbox-exec", () => {
  it("runs the command with its files, an empty home, a scrubbed environment and the profile of its sandbox", async () => {
    const script = `cat ${dir}/in/a; pwd; env | sort; ls -A "$HOME" "$TMPDIR"; ulimit -n; echo no >&2; exit 3`;
    const { status, out = "", err } = await ran(script, { ...shown, env: ["SHOWN", "A=b=c"] });
    expect([status, err]).toEqual([3, expect.stringMatching(/^corral: Seatbelt, no container: memory.*\nno\n$/)]);
    expect(
      out
        .replaceAll(/corral-seatbelt-\w+/g, "X")
        .split("\n")
        .filter((line) => !/^(PATH|_|OLDPWD|SHLVL)=/.test(line)),
    ).toEqual([
      ...["given", join(dir, "out"), "A=b=c", `HOME=${dir}/temporary/X/own/home`, `PWD=${dir}/out`, "SHOWN=shown"],
      ...[
        `TMPDIR=${dir}/temporary/X/own/tmp`,
        `${dir}/temporary/X/own/home:`,
        "",
        `${dir}/temporary/X/own/tmp:`,
        "4096",
        "",
      ],
    ]);
    const profile = new Profile(await readFile(join(dir, "profile.sb"), "utf8"));
    const may = (path: string) => [
      profile.allows("file-read-data", join(dir, path)),
      profile.allows("file-write-data", join(dir, path)),
    ];
    expect([may("in/a"), may("out/b"), may("elsewhere/c")]).toEqual([
      [true, false],
      [true, true],
      [false, false],
    ]);
    // Git of this machine would run it.
    expect(may("out/.git/hooks/pre-commit")).toEqual([true, false]);
  });

  it("refuses, and starts no command, if the first process finds no sandbox around it, or never begins", async () => {
    await standIn(":");
    expect((await ran(`echo ran >${dir}/out/ran`, shown)).status).toContain(
      "a file outside of it could be read or written",
    );
    await standIn("echo 'sandbox-exec: wrong profile' >&2; exit 65");
    const { status, err } = await ran("true");
    expect(status).toContain("sandbox-exec did not start the command");
    expect(err).toContain("wrong profile");
    await standIn("exec /nowhere/sandbox");
    expect((await ran("true")).status).toContain("did not start the command");
    expect(await readdir(join(dir, "out"))).toEqual([".git"]);
  });

  it("ends the command and what it started: at its time-out, at its limit of output, at Ctrl-C, and when it ends itself", async () => {
    // A process that is left over writes what no one would then read.
    const left = `(sleep 2; echo left >${dir}/out/left) & `;
    expect((await ran(`${left} sleep 60`, { ...shown, timeout: "1s" })).status).toBe(124);
    expect((await ran(`${left} head -c 3m /dev/zero; sleep 60`, { ...shown, output: "1m" })).status).toBe(153);
    const stopped = (stop: () => void): void => void setTimeout(stop, 500);
    expect(await ran(`${left} sleep 60`, { ...shown, stopped })).toMatchObject({ status: 130 });
    expect((await ran(`${left} kill -TERM $$`, shown)).status).toBe(143);
    expect(await ran(`${left} exit 0`, shown)).toMatchObject({ status: 0 });
    expect(await ran("", { words: ["no-such-program"] })).toMatchObject({ status: 127 });
    await new Promise((resolve) => setTimeout(resolve, 2200));
    expect(await readdir(join(dir, "out"))).toEqual([".git"]);
  });

  it.each([
    [{ policy: "untrusted" }, "the policy untrusted does not allow it: memory"],
    [{ policy: "default" }, "the policy default does not allow it: memory"],
    [{ isRoot: true }, "Corral is root"],
    [{ rw: ["."] }, "--rw needs --apply"],
    [{ ro: ["/etc"] }, "--ro /etc: "],
    [{ ro: ["missing"] }, "--ro missing: there is no such file"],
    [{ ro: ["planted"], rw: ["."], apply: true }, "leads through a symbolic link"],
    [{ workdir: "../elsewhere" }, "the command does not see it"],
    [{ timeout: "soon" }, "--timeout: "],
    [{ memory: "1g" }, "--memory cannot be had without a container"],
    [{ allow: ["a.example:443"] }, "--allow cannot be had without a container"],
    [{ attachTree: "HEAD" }, "--attach-tree cannot be had without a container"],
    [{ ro: ["../.."] }, "directory of Corral's own"],
  ] as const)("refuses %j before anything starts", async (options, reason) => {
    await mkdir(join(dir, "state"));
    // A command of before could have left it.
    await symlink("../elsewhere", join(dir, "out/planted"));
    const asked = { ...options } as Asked;
    expect((await ran(`echo ran >${dir}/elsewhere/ran`, asked)).status).toContain(reason);
    expect(await readdir(join(dir, "elsewhere"))).toEqual([]);
  });
});

it("knows a path only as the disk spells it: a rule fits no other spelling", async () => {
  expect(await spellingFault(join(dir, "in/a"))).toBe(null);
  expect(await spellingFault(join(dir, "in/A"))).toContain("A is not how the disk spells it");
});
