import { spawn } from "node:child_process";
import fs from "node:fs";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  bwrapWords,
  CORRAL_CALL,
  cellFiles,
  hostEntries,
  launcherWords,
  sharedBy,
  startText,
} from "../../../src/isolation/bwrap/cell-words.ts";
import { groundHere, look } from "../../../src/isolation/bwrap/open.ts";
import { ownNamespaces } from "../../../src/isolation/gate/verify.ts";
import { kernelText } from "../../../src/isolation/kernel/control-group.ts";
import { gateOf, LOCAL_NAMES, PROGRAM_DIRECTORIES, SETTINGS } from "../../../src/isolation/plan/plan.ts";
import { attemptIn, type Threat } from "../../../src/operations/verify/attacks.ts";
import { textBeside } from "../../../src/platform/text-beside.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { absence, openBwrapHere, USER } from "./bwrap.ts";

const PROGRAM = textBeside(import.meta.url, "../../../src/operations/verify/inside.pl");
const TEXT = "a text that only this machine has";
const absent = await absence();

/** What Perl does to the words of bubblewrap, in `@w`, and what `corral verify` must find then. */
const WORSE: Readonly<Record<string, readonly [edit: string, found: Threat]>> = {
  "no filter": ["cut('--seccomp', 2)", "kernel"],
  "settings that are mounted to be written": ["add('--bind', '/hostDIR/written', '/etc/ssl/certs')", "write"],
  "a folder in memory that other cells have too": ["add('--bind', '/empty', '/opt')", "write"],
  "a root that can be written": ["splice @w, -2", "write"],
  "the folder around what is given": ["add('--ro-bind', '/hostDIR', '/above')", "read"],
  "the network of the host": ["add('--share-net')", "network"],
  "the name of the host": ["instead(qw(user ipc net pid cgroup)); cut('--hostname', 2)", "namespaces"],
  "the shared memory of the host": ["instead(qw(user uts net pid cgroup))", "namespaces"],
  "a capability": ["add('--cap-add', 'CAP_NET_ADMIN')", "privileges"],
  "user 0": ["$w[at('--uid') + 1] = 0", "privileges"],
  "a device of the host": ["add('--tmpfs', '/dev', '--dev-bind', '/dev/null', '/dev/kvm')", "devices"],
  "all that its launcher has of this machine": ["add('--bind', '/host', '/above')", "read"],
  "/proc of the host": ["add('--bind', '/proc', '/host-proc')", "namespaces"],
};

/** Stands in for the bubblewrap of a cell: starts it with words that are worse. */
const standIn = (edit: string, real: string): string => `#!/usr/bin/perl
use POSIX ();
exec '${real}', @ARGV if $ARGV[0] ne '--args';
open(my $given, '<&=', 3); local $/;
my @w = split /\\0/, <$given>;
sub at { my @at = grep { my $n = $_; !grep { $w[$n + $_] ne $_[$_] } 0 .. $#_ } 0 .. $#w; die "no @_" if !@at; $at[0] }
sub cut { splice @w, at($_[0]), $_[1] }
# Before the root becomes read-only.
sub add { splice @w, -2, 0, @_ }
sub instead { splice @w, at('--unshare-all'), 1, map { "--unshare-$_" } @_ }
${edit};
open(my $worse, '+>', undef); $worse->autoflush(1); print $worse map { "$_\\0" } @w; sysseek $worse, 0, 0;
POSIX::dup2(fileno($worse), 3);
exec '${real}', @ARGV;
`;

describe.skipIf(absent !== null || process.arch !== "x64")("a cell of bubblewrap that was made worse", () => {
  let here: Awaited<ReturnType<typeof openBwrapHere>>;
  beforeAll(async () => {
    here = await openBwrapHere();
    await here.folder("written");
    await writeFile(join(here.dir, "canary-of-a-test"), TEXT, { mode: 0o644 });
  });
  afterAll(() => here[Symbol.asyncDispose]());

  /** What `corral verify` finds in the cell of a plan; nothing verifies that one before. */
  async function foundIn(bwrap: string): Promise<string[]> {
    const docs = await here.folder("docs");
    await writeFile(join(docs, "a.txt"), "a", { mode: 0o666 });
    const given = Object.entries({
      ...{ canary: join(here.dir, "canary-of-a-test"), name: "canary-of-a-test", text: TEXT },
      ...{ hosts: "127.0.0.1", port: "9", seconds: "0.001", programs: [...PROGRAM_DIRECTORIES, ...SETTINGS].join() },
      ...Object.fromEntries(Object.entries(ownNamespaces()).map(([kind, id]) => [`ns_${kind}`, id])),
    }).map(([name, value]) => `${name}=${value}`);
    const { plan } = await here.plan({
      command: ["perl", "-e", PROGRAM, "inside", ...given],
      mounts: [{ name: "docs", path: "/docs" as VirtualPath, host: docs, mode: "ro" }],
    });
    const run = await here.folder(`cells/${plan.run}`);
    const file = (name: string, content: string | Buffer = ""): string => {
      fs.writeFileSync(join(run, name), content);
      fs.chownSync(join(run, name), USER.uid, USER.gid);
      return join(run, name);
    };
    const words = {
      ...{ plan, programs: { ...(await groundHere(USER)), bwrap }, entries: hostEntries(look) },
      ...{
        gate: gateOf(plan),
        groups: [],
        filter: file("filter", here.filterOf(plan)),
        call: file("call", CORRAL_CALL),
      },
      ...{ words: join(run, "x.words"), status: join(run, "x.status") },
      streams: { stdin: file("in", "go\n"), stdout: file("out"), stderr: file("err") },
    };
    file("x.words", bwrapWords(words));
    file("x.start", startText(words));
    const shared = sharedBy(words, { cells: join(here.dir, "cells"), starts: run }, cellFiles(plan, LOCAL_NAMES));
    const { bwrap: real } = await groundHere(USER);
    const child = spawn(real, launcherWords(shared), { env: {}, stdio: ["pipe", "ignore", "inherit"], ...USER });
    child.stdin?.write(`${plan.run} x\n`);
    const said = (name: string): string => kernelText(join(run, name)) ?? "";
    await expect.poll(() => said("x.status"), { timeout: 20_000, interval: 20 }).toContain("exit-code");
    child.stdin?.end();
    await new Promise((ended) => child.once("close", ended));
    const text = said("out");
    expect(text.endsWith("end\n"), `${said("err")}${text.slice(-300)}`).toBe(true);
    return text.split("\n").flatMap((line) => {
      const attempt = attemptIn(line);
      return attempt === null || attempt.saw === null ? [] : [`${attempt.threat}: ${attempt.what}`];
    });
  }

  it("is nothing of that as it is", async () => {
    expect(await foundIn((await groundHere(USER)).bwrap)).toEqual([]);
  });

  it.each(Object.entries(WORSE))("is refused, and found by corral verify: %s", async (name, [edit, threat]) => {
    const programs = await groundHere(USER);
    const bwrap = join(here.dir, `bwrap-${name.replaceAll(/\W/g, "-")}`);
    await writeFile(bwrap, standIn(edit.replace("DIR", here.dir), programs.bwrap));
    await chmod(bwrap, 0o755);
    const { plan, pins } = await here.plan({ command: ["echo", "it ran"] });
    let said = "";
    const onOutput = (_: string, chunk: Buffer): void => {
      said += chunk.toString();
    };
    const signal = new AbortController().signal;
    const started = await here.driverWith({ ...programs, bwrap }).start({ plan, pins, signal, onOutput });
    if (started.ok) await started.cell[Symbol.asyncDispose]();
    expect([started.ok, said]).toEqual([false, ""]);
    expect((await foundIn(bwrap)).map((line) => line.split(":")[0])).toContain(threat);
  });
});
