import { readFile, writeFile } from "node:fs/promises";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { seatbeltProfile } from "../../../src/isolation/seatbelt/profile.ts";
import { canRead, checkConsent, checkWrite } from "../../../src/sandbox/access.ts";
import type { Consent } from "../../../src/sandbox/approval.ts";
import type { Mode, Mount } from "../../../src/sandbox/mount.ts";
import type { Policy } from "../../../src/sandbox/policy.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";
import { at, project, roomy } from "../../sandbox/sandboxes.ts";
import { Profile } from "./policy-language.ts";

const mac: Policy = {
  ...roomy,
  hardening: { ...roomy.hardening, driver: "seatbelt", hostExecuted: "ask", tmpExec: false },
};
const places = { temporary: "/private/var/folders/x/T/corral/own", own: ["/Users/me/.local/state/corral"] };

function mounted(
  host: string,
  mode: Mode,
  [write, remove]: readonly [Consent, Consent] = ["pre_approved", "pre_approved"],
): Mount {
  return { name: host, path: at(host), host, mode, approval: { write, delete: remove } };
}

function sandboxOf(mounts: readonly Mount[], policy = mac): Sandbox {
  return { ...project([], {}, policy), mounts, network: false };
}

function textOf(sandbox: Sandbox): string {
  const profile = seatbeltProfile(sandbox, places);
  if (!profile.ok) throw new Error(profile.missing.join("\n"));
  return profile.text;
}

function missing(sandbox: Sandbox): string {
  const profile = seatbeltProfile(sandbox, places);
  return profile.ok ? "" : profile.missing.join("\n");
}

/** One that the kernel could report of a file. */
function isPlain(host: string): boolean {
  const parts = host.split("/").slice(1);
  return host.isWellFormed() && !/[\p{Cc}\ufffd]/u.test(host) && !parts.some((part) => ["", ".", ".."].includes(part));
}

const GOLDEN: Readonly<Record<string, Sandbox>> = {
  "no-files": sandboxOf([]),
  "read-only": sandboxOf([mounted("/Users/me/in", "ro")]),
  writable: sandboxOf([mounted("/Users/me/out", "rw")]),
  nested: sandboxOf([
    mounted("/Users/me/p", "rw"),
    mounted("/Users/me/p/a/b", "ro"),
    mounted("/Users/me/p/a/b/out", "rw"),
  ]),
  "no-deleting": sandboxOf([mounted("/Users/me/log", "rw", ["pre_approved", "blocked"])]),
  "only-deleting": sandboxOf([mounted("/Users/me/trash", "rw", ["blocked", "pre_approved"])]),
  "executable-tmp": sandboxOf([], { ...mac, hardening: { ...mac.hardening, tmpExec: true } }),
  "awkward-names": sandboxOf([mounted('/Users/me/a "b" (c)', "ro"), mounted("/Users/me/ä;日", "rw")]),
};

describe("the profile of a sandbox for macOS's Seatbelt", () => {
  it.each(Object.keys(GOLDEN))("of %s is what its golden file says", async (name) => {
    const file = new URL(`golden/${name}.sb`, import.meta.url);
    const text = textOf(GOLDEN[name] as Sandbox);
    if (process.env.UPDATE_GOLDEN) await writeFile(file, text);
    expect(text).toBe(await readFile(file, "utf8"));
  });

  it("decides of any path what the validator does, for random sandboxes", () => {
    const part = fc.constantFrom("a", "b", "a b", 'q"', "A");
    const path = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => `/Users/me/${parts.join("/")}`);
    const consent = fc.constantFrom<Consent>("pre_approved", "blocked");
    const mount = fc
      .tuple(path, fc.constantFrom<Mode>("ro", "rw"), consent, consent)
      .map(([host, mode, write, remove]) => mounted(host, mode, [write, remove]));
    const mounts = fc.uniqueArray(mount, { selector: ({ host }) => host, maxLength: 6 });
    fc.assert(
      fc.property(mounts, fc.array(path, { minLength: 1, maxLength: 10 }), (some, paths) => {
        const sandbox = sandboxOf(some);
        const profile = new Profile(textOf(sandbox));
        const places = [...paths, ...paths.map((one) => `${one}/x`), ...some.map(({ host }) => host)];
        const answers = (by: (path: string) => readonly boolean[]): unknown =>
          places.map((path) => [path, ...by(path)]);
        const ofKernel = answers((path) =>
          ["file-read-data", "file-write-data", "file-write-create", "file-write-unlink", "file-link"].map(
            (operation) => profile.allows(operation, path),
          ),
        );
        const ofValidator = answers((path) => {
          const [write, remove] = (["write", "delete"] as const).map(
            (operation) =>
              checkWrite(sandbox, at(path)) === null && checkConsent(sandbox, at(path), operation) === null,
          ) as [boolean, boolean];
          // What holds a mount, or is one, stays where it is, as in a cell.
          const isHeld = some.some(({ host }) => host === path || host.startsWith(`${path}/`));
          return [canRead(sandbox, at(path)), write, write && !isHeld, remove && !isHeld, false];
        });
        expect(ofKernel).toEqual(ofValidator);
      }),
      { numRuns: 200 },
    );
  });

  it("allows nothing else of the host: no network, no other process, no home, no device, no execution of what is temporary", () => {
    const profile = new Profile(textOf(sandboxOf([mounted("/Users/me/out", "rw")])));
    const secret = [
      "/Users/me/.ssh/id",
      "/Users/me/outer",
      "/Users",
      "/private/etc/master.passwd",
      "/Library/Keychains/x",
      "/dev/disk0",
      "/dev/tty",
    ];
    for (const path of [...secret, places.own[0] as string, "/private/var/folders/x/T/corral/outside"]) {
      expect([path, profile.allows("file-read-data", path), profile.allows("file-write-data", path)]).toEqual([
        path,
        false,
        false,
      ]);
    }
    for (const operation of [
      "network-outbound",
      "network-bind",
      "system-socket",
      "mach-register",
      "ipc-posix-shm",
      "ipc-posix-sem",
      "iokit-open",
      "file-ioctl",
      "appleevent-send",
      "job-creation",
      "pseudo-tty",
    ])
      expect([operation, profile.allows(operation, "/Users/me/out/x")]).toEqual([operation, false]);
    expect(profile.texts("global-name")).toEqual(["com.apple.system.opendirectoryd.libinfo"]);
    expect(profile.texts("sysctl-name").filter((name) => /kern\.proc|hostname|uuid/.test(name))).toEqual([]);
    for (const operation of ["process-exec", "process-exec-interpreter", "file-map-executable"]) {
      expect(profile.allows(operation, "/usr/bin/env")).toBe(true);
      expect(profile.allows(operation, "/Users/me/out/x")).toBe(true);
      expect(profile.allows(operation, `${places.temporary}/tmp/x`)).toBe(false);
    }
    expect(profile.allows("file-write-create", `${places.temporary}/tmp/x`)).toBe(true);
    expect(profile.allows("file-write-unlink", places.temporary)).toBe(false);
  });

  it("names the text of any path exactly, or is refused", () => {
    const unit = fc.constantFrom(...'ab/."\\()#;| \n\0\x7f\u0085é日\ufffd\ud800\u202e'.split(""));
    const paths = fc.string({ unit, minLength: 1, maxLength: 12 }).map((text) => `/Users/me/${text}`);
    const hostile = fc.constantFrom(
      '/Users/me/")(allow default)(x "',
      "/Users/me/a\\",
      '/Users/me/\\"',
      "/Users/me/a;b",
      "/Users/me/#|",
    );
    fc.assert(
      fc.property(fc.oneof(paths, hostile), (host) => {
        const profile = seatbeltProfile(sandboxOf([{ ...mounted("/x", "rw"), host }]), places);
        expect(profile.ok).toBe(isPlain(host));
        if (profile.ok) expect(new Profile(profile.text).texts("subpath")).toContain(host);
      }),
      { numRuns: 200 },
    );
    for (const host of [
      "/Users/me/a\nb",
      "/Users/me/\u0000",
      "/Users/me/\ufffd",
      "/Users/me/../you",
      "Users/me",
      "/Users/me/",
      "/Users/\ud800",
    ])
      expect([host, missing(sandboxOf([{ ...mounted("/x", "ro"), host }]))]).toEqual([
        host,
        expect.stringContaining("its path"),
      ]);
  });

  it("is refused for all that Seatbelt cannot keep, each with its reason", () => {
    const one = (more: Partial<Mount>): Sandbox => sandboxOf([{ ...mounted("/Users/me/p", "rw"), ...more }]);
    expect(missing({ ...sandboxOf([]), network: { allow: [] } })).toContain("no network");
    expect(missing({ ...sandboxOf([]), network: true })).toContain("no network");
    expect(missing({ ...sandboxOf([]), secrets: ["token"] })).toContain("a secret");
    expect(missing({ ...sandboxOf([]), writableRoot: true })).toContain("root file system");
    expect(missing({ ...sandboxOf([]), withheld: [mounted("/Users/me/w", "ro")] })).toContain("a person has to agree");
    expect(missing(one({ approval: { write: "ask", delete: "pre_approved" } }))).toContain("until a person agrees");
    for (const more of [{ stage: true }, { discard: true }] as const)
      expect(missing(one(more))).toContain("kept apart");
    for (const more of [{ suffixes: [".md"] }, { maxFileBytes: 1 }])
      expect(missing(one(more))).toContain("suffixes or sizes");
    expect(missing(sandboxOf([mounted("/Users/me/p/.git/hooks", "rw")]))).toContain("execute what is written there");
    for (const host of [
      "/",
      "/Users",
      "/Users/me/.local/state/corral/x",
      "/usr",
      "/usr/bin",
      "/private/etc",
      "/System/Volumes/Data/Users/me/p",
      places.temporary,
    ])
      expect([host, missing(one({ host }))]).toEqual([host, expect.stringContaining("it is, holds or lies in")]);
    // At another place, and one in the other only on this machine.
    const apart = [mounted("/Users/me/p", "rw"), { ...mounted("/Users/me/p/in", "ro"), host: "/Users/me/q" }];
    const together = [mounted("/Users/me/p", "rw"), { ...mounted("/Users/me/q", "ro"), host: "/Users/me/p/q" }];
    for (const mounts of [apart, together]) expect(missing(sandboxOf(mounts))).toContain("it lies in another mount");
  });

  it.each([undefined, "auto", "engine", "runc", "prefer-runc", "bwrap"] as const)(
    "is refused by a policy with the driver %s",
    (driver) => {
      const { driver: _, ...hardening } = mac.hardening;
      const policy = { ...mac, hardening: driver === undefined ? hardening : { ...hardening, driver } };
      expect(missing(sandboxOf([], policy))).toContain("memory, processors, processes and the disk are not limited");
    },
  );
});
