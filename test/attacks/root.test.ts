import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type OpenedSession, openSession, type SessionRequest } from "../../src/run/open-session.ts";
import { openProject, type ProjectFixture } from "../run/project-fixture.ts";

const never = new AbortController().signal;
const W = {
  command: ["true"],
  root: "writable",
  limits: { disk: "16m" },
  sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved", stage: true }] },
  shell_rules: { default: "pre_approved" },
};
const POLICY = `name: loose
description: for packages
extends: untrusted
hardening: { read_only_root: { value: false, why: a test installs packages } }
`;
let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject({
    workers: { w: W, plain: { ...W, root: "read-only" } },
    zones: { out: "rw" },
    policy: "loose",
    yaml: { policies: "./policies" },
    files: { "policies/loose.yaml": POLICY, "out/kept": "of the host\n" },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

type Open = Extract<OpenedSession, { ok: true }>;

async function opening({ as = "w", ...request }: Partial<SessionRequest> & { readonly as?: string } = {}) {
  const worker = project.corral.project.workers.get(as);
  if (worker === undefined) throw new Error("no such worker");
  return await openSession({ worker, signal: never, ...request }, project.corral.environment);
}

async function open(more: Parameters<typeof opening>[0] = {}): Promise<Open> {
  const opened = await opening(more);
  if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
  return opened;
}

async function ran({ session }: Open, command: string): Promise<string> {
  const { stdout, stderr } = await session.exec({ command }, never);
  return stdout + stderr;
}

function snapshotsOf({ session }: Open) {
  if (session.snapshots === null) throw new Error("it takes none");
  return session.snapshots;
}

async function* bytes(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

/** A package that runs a script when it is installed. */
const PACKAGE = `mkdir -p /tmp/p/DEBIAN /tmp/p/usr/local/bin
printf 'Package: hullo\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.org>\\nDescription: x\\n' > /tmp/p/DEBIAN/control
printf '#!/bin/sh\\necho configured as $(id -u)\\n' > /tmp/p/DEBIAN/postinst
printf '#!/bin/sh\\necho hullo\\n' > /tmp/p/usr/local/bin/hullo
chmod 755 /tmp/p/DEBIAN/postinst /tmp/p/usr/local/bin/hullo
dpkg-deb --build /tmp/p /tmp/p.deb > /dev/null && dpkg -i /tmp/p.deb && hullo`;

/** What it plants, each with how that ended. */
const PLANTED = `cp /bin/cat /usr/local/bin/suid && chmod 6755 /usr/local/bin/suid
mknod /usr/disk b 8 0; mknod /etc/zero c 1 5; touch /new; touch /.corral/x
rm /etc/hosts; mv /etc /etc2; mv /var/lib /var/lib2 && ln -s /out /var/lib
echo 'root::0:0:root:/:/bin/sh' > /etc/passwd; echo /out/evil.so > /etc/ld.so.preload
for name in sh cat ls tar busybox; do rm -f /usr/bin/$name; ln -s /out/evil /usr/bin/$name; done
ln -s ../../../../../../out/kept /usr/local/out; ln -s /proc/1/root /usr/local/one`;

describe("a session with a writable root", () => {
  it("installs packages as its own user, and what it plants gives it nothing, here, in its snapshot or in a fork", async () => {
    await using a = await open();
    const installed = await ran(a, PACKAGE);
    expect(installed).toContain("configured as 65532\n");
    expect(installed.endsWith("hullo\n")).toBe(true);
    const planted = await ran(a, PLANTED);
    expect(planted).toMatch(/disk.*not permitted/);
    expect(planted).toMatch(/zero.*not permitted/);
    expect(planted).toMatch(/\/new.*Read-only/);
    expect(planted).toMatch(/\.corral\/x.*Read-only/);
    expect(planted).toMatch(/hosts.*busy/);
    const { id, has, lacks } = await snapshotsOf(a).take("packages");
    expect({ has, lacks }).toEqual({ has: ["/out", "root file system"], lacks: [] });
    // Its programs are links to what is not there. Corral runs none of them.
    expect(await ran(a, "/usr/bin/cat /out/kept")).toContain("not found");
    await a.session.put({ path: "/out/put", kind: "file", content: bytes("put\n") }, never);
    const done = Promise.withResolvers<void>();
    const { content } = await a.session.get("/out/put", done.promise, never);
    expect(Buffer.concat(await Array.fromAsync(content)).toString()).toBe("put\n");
    done.resolve();
    await a.discard();

    await using fork = await open({ from: id });
    await snapshotsOf(fork).restore("packages");
    expect(await ran(fork, "hullo; /usr/bin/cat /out/kept")).toMatch(/not found/);
    await fork.session.put({ path: "/out/evil", kind: "file", content: bytes("never run\n") }, never);
    const { plan } = await fork.session.cell(never);
    expect(plan.user).toMatchObject({ uid: 65532 });
    expect(plan.mounts.filter(({ origin }) => origin === "root").every(({ staged }) => staged)).toBe(true);
    const changes = (await snapshotsOf(fork).differences("packages", never)).map(({ path }) => path);
    expect(changes).toEqual(["/out/evil"]);
    await fork.finish();
    expect(await readFile(join(project.dir, "out/kept"), "utf8")).toBe("of the host\n");
    expect(await readdir(join(project.dir, "out"))).toEqual(["evil", "kept"]);
  });

  it("is stopped by its disk limit, and goes back to what a snapshot has, whose layers forks share", async () => {
    await using a = await open();
    await ran(a, "echo one > /usr/local/one; rm -r /usr/share/doc");
    const { id } = await snapshotsOf(a).take(null);
    const filled = await a.session.exec(
      { command: "for i in 1 2 3 4 5 6 7 8 9; do head -c 8000000 /dev/zero > /var/tmp/$i; sleep 0.3; done" },
      never,
    );
    expect(filled.status).toBe("disk_limit");
    const changed = async () =>
      (await snapshotsOf(a).differences(id, never)).map(({ kind, path }) => `${kind} ${path}`);
    expect(await changed()).toContain("create /var/tmp/1");
    await snapshotsOf(a).restore(id);
    expect(await changed()).toEqual([]);
    expect(await ran(a, "cat /usr/local/one; ls /usr/share/doc /var/tmp; echo two > /usr/local/one")).toMatch(
      /^one\n.*doc.*No such file/s,
    );
    await using fork = await open({ from: id });
    expect(await ran(fork, "cat /usr/local/one")).toBe("one\n");
  });

  it("is had by no other worker, run or fork than those that ask and may", async () => {
    await using plain = await open({ as: "plain" });
    expect(await ran(plain, "touch /usr/local/x")).toContain("Read-only file system");
    const codes = (violations: readonly { readonly code: string }[]) => violations.map(({ code }) => code);
    const strict = await opening({ policy: "untrusted" });
    expect(strict.ok ? [] : codes(strict.violations)).toEqual(["ROOT_NOT_WRITABLE"]);
    expect(codes((await project.run("w")).violations)).toEqual(["ROOT_NOT_ENFORCEABLE"]);
  });
});
