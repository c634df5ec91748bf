import { readFile, writeFile } from "node:fs/promises";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MAX_ANCHORS } from "../../../src/isolation/plan/mounts.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { type PlanRequest, planFor } from "../../../src/isolation/plan/plan-for.ts";
import type { ApprovalRules } from "../../../src/sandbox/approval.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";
import type { Violation } from "../../../src/sandbox/violation.ts";
import { at, child, mount, project, roomy, strict } from "../../sandbox/sandboxes.ts";
import { type RequestAsked, requestFor } from "../plan-requests.ts";

const pre_approved: ApprovalRules = { write: "pre_approved", delete: "pre_approved" };
const untrusted = { ...strict, name: "untrusted" };

/** A project's own sandbox without network, which is what most plans are about. */
function under(mounts: readonly Mount[], policy = untrusted, more: Partial<Sandbox> = {}): Sandbox {
  return { ...project(mounts, { network: false }, policy), ...more };
}

const writable = (path: string, more: Partial<Mount> = {}) => mount(path, "rw", { approval: pre_approved, ...more });

const GOLDEN: Readonly<Record<string, RequestAsked>> = {
  "no-files": { sandbox: under([]) },
  zones: { sandbox: under([mount("/data", "ro"), writable("/text")], untrusted, { workingDir: at("/text/in") }) },
  rooted: { sandbox: under([writable("/"), mount("/docs", "ro")]) },
  "nested-mounts": {
    sandbox: under([
      writable("/src/out/deep", { host: "/host/src/out/deep" }),
      mount("/src", "ro"),
      writable("/src/out", { host: "/host/src/out" }),
      mount("/a", "ro"),
    ]),
  },
  "held-in-place": {
    sandbox: under([
      writable("/site"),
      mount("/site/conf/a/locked", "ro", { host: "/host/site/conf/a/locked" }),
      writable("/site/conf/a/locked/b/out", { host: "/host/site/conf/a/locked/b/out" }),
      mount("/site/conf/key", "ro", { host: "/host/site/conf/key" }),
      writable("/staged", { stage: true }),
      mount("/staged/x/y", "ro", { host: "/host/staged/x/y" }),
    ]),
    files: ["/host/site/conf/key"],
    owners: { "/host/site/conf": 0 },
  },
  attachments: {
    sandbox: under([mount("/data", "ro")]),
    attachments: [
      { name: "b.pdf", host: "/host/inbox/b.pdf" },
      { name: "a b.pdf", host: "/host/inbox/a.pdf" },
    ],
  },
  "held-back-for-approval": {
    sandbox: under([
      mount("/asks", "rw", { approval: { write: "ask", delete: "ask" } }),
      mount("/keeps", "rw", { approval: { write: "pre_approved", delete: "blocked" } }),
      mount("/closed", "rw", { approval: { write: "blocked", delete: "blocked" } }),
      mount("/silent", "rw"),
      writable("/free"),
    ]),
  },
  "single-file": { sandbox: under([mount("/notes.md", "ro")]), files: ["/host/notes.md"] },
  "network-open": { sandbox: project([], { network: true }, { ...roomy, name: "roomy" }) },
  secrets: { sandbox: project([], { network: false, secrets: ["token", "key"] }, { ...roomy, name: "roomy" }) },
  "network-of-names": {
    sandbox: under([], untrusted, {
      network: {
        allow: [
          { to: "api.example.org:443", methods: ["GET"] },
          { to: "db.example.org:5432" },
          { to: "example.org:443" },
        ],
      },
    }),
  },
  "network-with-a-proxy": {
    sandbox: under([], untrusted, {
      network: {
        allow: [
          { to: "*.example.org:443" },
          { to: "db.example.org:5432" },
          { to: "example.org:443" },
          { to: "other.example:443" },
        ],
      },
    }),
    env: { no_proxy: "the worker's own" },
  },
  "network-to-ask-for": {
    sandbox: under([], untrusted, { network: { allow: [], dynamic: { within: ["*.example.org:443"], max: 8 } } }),
  },
  "image-with-volumes-and-variables": {
    sandbox: under([mount("/srv/data", "ro", { host: "/host/data" })]),
    image: {
      env: ["PATH=/opt/bin:/bin", "JAVA_HOME=/opt/java", "HOME=/root", "LANG=de_DE", "EQUALS=a=b", "BROKEN"],
      volumes: ["/var/lib/things/", "/tmp", "/srv/data", "/home/worker", "/srv"],
    },
    env: { LANG: "C", HOME: "/elsewhere", TOKEN: "given" },
  },
  "home-mount": { sandbox: under([writable("/home")]) },
  "home-in-a-mount": { sandbox: under([writable("/home/worker", { host: "/host/home/worker" })]) },
  "limits-of-its-own": {
    sandbox: under([], untrusted, { limits: { memoryBytes: 1_000_001, cpus: 0.5, timeoutMs: 1000, diskBytes: 4096 } }),
  },
  "ordinary-orchestrator": {
    sandbox: under([mount("/data", "ro"), writable("/text")]),
    owners: { "/host/data": 0, "/host/text": 1000 },
    orchestratorUid: 1000,
  },
  "root-where-the-policy-lets": { sandbox: under([writable("/text")], roomy), owners: { "/host/text": 0 } },
};

/** The golden file that has every limit and every hardening line; the others have only those that differ from it. */
const WHOLE = "no-files";

function planOf(name: string): Plan {
  const planning = planFor(requestFor(GOLDEN[name] ?? { sandbox: under([]) }));
  if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
  return planning.plan;
}

function goldenOf(name: string): object {
  const [plan, whole] = [planOf(name), planOf(WHOLE)];
  if (name === WHOLE) return plan;
  return {
    ...plan,
    limits: differing(plan.limits, whole.limits),
    hardening: differing(plan.hardening, whole.hardening),
  };
}

/** Null: `whole` has it, and this one does not. */
function differing(lines: object, whole: object): object {
  const [own, all] = [new Map(Object.entries(lines)), new Map(Object.entries(whole))];
  const keys = [...new Set([...all.keys(), ...own.keys()])];
  const others = keys.filter((key) => JSON.stringify(own.get(key)) !== JSON.stringify(all.get(key)));
  return Object.fromEntries(others.map((key) => [key, own.get(key) ?? null]));
}

describe("the whole plan", () => {
  // A change that is meant: run this file with UPDATE_GOLDEN=1, format the files, and read each difference.
  it.each(Object.keys(GOLDEN))("of %s is what its golden file says, to the byte", async (name) => {
    const file = new URL(`golden/${name}.json`, import.meta.url);
    if (process.env.UPDATE_GOLDEN) await writeFile(file, JSON.stringify(goldenOf(name), null, 2));
    const golden = JSON.parse(await readFile(file, "utf8"));
    expect(goldenOf(name)).toEqual(golden);
    expect(JSON.stringify(goldenOf(name))).toBe(JSON.stringify(golden));
  });

  it("depends on nothing but its request: the same, in any order of its parts, gives the same bytes", () => {
    const names = fc.uniqueArray(fc.constantFrom("a", "b", "c", "data", "text", "z"), { minLength: 1 });
    fc.assert(
      fc.property(names, fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }), (chosen, modes) => {
        const mounts = chosen.map((name, index) => (modes[index] ? writable(`/${name}`) : mount(`/${name}`, "ro")));
        const asked = (order: readonly Mount[]) => requestFor({ sandbox: under(order) });
        const text = JSON.stringify(planFor(asked(mounts)));
        expect(JSON.stringify(planFor(asked(mounts)))).toBe(text);
        expect(JSON.stringify(planFor(asked(mounts.toReversed())))).toBe(text);
        const request = asked(mounts);
        const shuffled: PlanRequest = { ...request, sources: new Map([...request.sources].reverse()) };
        expect(JSON.stringify(planFor(shuffled))).toBe(text);
      }),
    );
  });

  it("of a child differs from its parent's only in what the child lost", () => {
    const parent = under([mount("/data", "ro"), writable("/text")]);
    const [whole, part] = [parent, child(parent, { zones: [{ name: "data" }] })].map((sandbox) =>
      planFor(requestFor({ sandbox })),
    );
    const paths = (planning: typeof whole) => (planning?.ok ? planning.plan.mounts.map(({ path }) => path) : []);
    expect(paths(whole)).toEqual(["/data", "/text", "/.corral/busybox", "/.corral/socket"]);
    expect(paths(part)).toEqual(["/data", "/.corral/busybox", "/.corral/socket"]);
  });
});

describe("what no cell can express", () => {
  function refusals(asked: RequestAsked): readonly Violation[] {
    const planning = planFor(requestFor(asked));
    return planning.ok ? [] : planning.violations;
  }

  it.each(["/etc", "/usr/share", "/proc/x", "/tmp", "/attachments", "/.corral/x", "/lib64"])(
    "is a mount at %s, which is the cell's own",
    (path) => {
      expect(refusals({ sandbox: under([mount(path, "ro")]) })).toEqual([{ code: "MOUNT_RESERVED", path }]);
    },
  );

  it("is not those names below the root form, which stands in a directory of its own", () => {
    expect(refusals({ sandbox: under([mount("/", "ro"), mount("/etc", "ro")]) })).toEqual([]);
  });

  it("is a mount below another whose host directory is elsewhere: its place would be made on the host, by root", () => {
    const sandbox = under([mount("/src", "ro"), mount("/src/lib", "ro", { host: "/elsewhere" })]);
    expect(refusals({ sandbox })).toEqual([{ code: "MOUNT_RESERVED", path: "/src/lib", because: "nesting" }]);
  });

  it("is a mount that would need more folders to be held in their places than a cell may have", () => {
    const path = (depth: number): string => `/src/${"d/".repeat(depth)}in`;
    const nested = (depth: number) =>
      under([writable("/src"), mount(path(depth), "ro", { host: `/host${path(depth)}` })]);
    expect(refusals({ sandbox: nested(MAX_ANCHORS) })).toEqual([]);
    const because = "depth";
    expect(refusals({ sandbox: nested(MAX_ANCHORS + 1) })).toEqual([
      { code: "MOUNT_RESERVED", path: path(MAX_ANCHORS + 1), because },
    ]);
  });

  it("is a volume of the image below a mount: its place would be made on the host, by root", () => {
    const sandbox = under([mount("/srv", "ro"), mount("/data", "ro")]);
    expect(refusals({ sandbox, image: { volumes: ["/srv/cache", "/data"] } })).toEqual([
      { code: "MOUNT_RESERVED", path: "/srv", because: "volume" },
    ]);
  });

  it("is a volume of the image where a cell has things of its own, or nowhere", () => {
    const own = ["/", "/proc", "/sys/fs/cgroup", "/dev/", "/dev/pts", "/.corral", "/.corral/busybox", "/etc/hosts"];
    const nowhere = ["", "x/y", "/x/../v", "../../v", "//data", "/./v"];
    for (const path of [...own, ...nowhere])
      expect(refusals({ sandbox: under([]), image: { volumes: ["/v", path] } }), path).toEqual([
        { code: "IMAGE_REFUSED", image: "corral/base", reason: expect.stringContaining(JSON.stringify(path)) },
      ]);
    const others = ["/v", "/dev/shm", "/etc", "/.corrals", "/procs", "/var/lib/x/"];
    expect(refusals({ sandbox: under([]), image: { volumes: others } })).toEqual([]);
  });

  it.each([
    ["suffixes", mount("/md", "ro", { suffixes: [".md"] })],
    ["sizes", mount("/small", "ro", { maxFileBytes: 10 })],
    ["consent that is not given yet", mount("/asks", "rw")],
    ["a side", mount("/side", "rw", { approval: { write: "pre_approved", delete: "pre_approved" }, stage: true })],
  ])("is a mount with %s as it is: without a view there is no plan at all", (_, constrained) => {
    const request = requestFor({ sandbox: under([constrained]) });
    expect(() => planFor({ ...request, views: new Set() })).toThrow(/no view for/);
    const planning = planFor({ ...request, views: new Set([constrained.path]) });
    expect(planning.ok && planning.plan.mounts.find(({ path }) => path === constrained.path)).toMatchObject({
      staged: true,
    });
  });

  it("is an allow list in a cell that serves many items", () => {
    const sandbox = under([], untrusted, { network: { allow: [{ to: "example.org:443" }] } });
    const request = requestFor({ sandbox });
    const items = { io: "/state/live/owner/io", attachments: "/state/live/owner/at" };
    const folder = { device: "8", inode: "13", uid: 65532, gid: 65532, kind: "directory" } as const;
    const sources = new Map([...request.sources, [items.io, folder], [items.attachments, folder]]);
    const planning = planFor({ ...request, sources, plumbing: { ...request.plumbing, items } });
    expect(planning).toMatchObject({ ok: false, violations: [{ code: "NETWORK_NOT_ENFORCEABLE" }] });
  });

  it("is a secret in a cell that serves many items, or below which the image has a volume", () => {
    const sandbox = project([], { network: false, secrets: ["token"] });
    const request = requestFor({ sandbox, image: { volumes: ["/run/secrets/token/"] } });
    const items = { io: "/state/live/owner/io", attachments: "/state/live/owner/at" };
    const folder = { device: "8", inode: "13", uid: 65532, gid: 65532, kind: "directory" } as const;
    const sources = new Map([...request.sources, [items.io, folder], [items.attachments, folder]]);
    expect(planFor({ ...request, sources, plumbing: { ...request.plumbing, items } })).toEqual({
      ok: false,
      violations: [
        { code: "SECRETS_NOT_ENFORCEABLE", reason: expect.stringContaining("Use `reuse: fresh`") },
        { code: "MOUNT_RESERVED", path: "/run/secrets", because: "volume" },
      ],
    });
    const inItsPlace = planFor(requestFor({ sandbox, image: { volumes: ["/run/secrets", "/run"] } }));
    if (!inItsPlace.ok) throw new Error(JSON.stringify(inItsPlace.violations));
    expect(inItsPlace.plan.tmpfs.filter(({ path }) => path === "/run/secrets")).toMatchObject([{ bytes: 1024 ** 2 }]);
  });

  it("is a file of Corral's own below a mount: its place would be made on the host, by root", () => {
    const use = ["sparse+http://index.example/"];
    const allow = [{ to: "index.example:443", methods: ["GET"], packages: { kind: "crates", use } as const }];
    const asked = (path: string) => under([mount(path, "ro")], untrusted, { network: { allow } });
    expect(refusals({ sandbox: asked("/.cargo") })).toEqual([{ code: "MOUNT_RESERVED", path: "/.cargo" }]);
    expect(refusals({ sandbox: asked("/cargo") })).toEqual([]);
  });

  it("is an allow list of more places than a cell can have; an empty one is no network", () => {
    const listOf = (count: number) =>
      under([], untrusted, {
        network: { allow: Array.from({ length: count }, (_, n) => ({ to: `h${n}.example.org:443` })) },
      });
    expect(refusals({ sandbox: listOf(1000) })).toEqual([]);
    expect(refusals({ sandbox: listOf(1001) })).toMatchObject([{ reason: expect.stringContaining("1001") }]);
    expect(refusals({ sandbox: listOf(1), orchestratorUid: 1000 })).toEqual([]);
    expect(refusals({ sandbox: listOf(0) })).toEqual([]);
  });

  it("is one user for writable directories of several owners, who are all named", () => {
    const sandbox = under([writable("/a"), writable("/b")]);
    const [refused] = refusals({ sandbox, owners: { "/host/a": 1000, "/host/b": 1001 } });
    expect(refused).toMatchObject({ code: "USER_NOT_ALLOWED", reason: expect.stringMatching(/1000:1000.*1001:1001/) });
  });

  it("is not root under a policy that does not run workers as root", () => {
    const sandbox = under([writable("/a")]);
    const [refused] = refusals({ sandbox, owners: { "/host/a": 0 } });
    expect(refused).toMatchObject({ code: "USER_NOT_ALLOWED", reason: expect.stringContaining("untrusted") });
  });

  it("is another user's directory for an orchestrator that is an ordinary user", () => {
    const sandbox = under([writable("/a")]);
    expect(refusals({ sandbox, owners: { "/host/a": 1001 }, orchestratorUid: 1000 })).toMatchObject([
      { code: "USER_NOT_ALLOWED" },
    ]);
    expect(refusals({ sandbox, owners: { "/host/a": 1000 }, orchestratorUid: 1000 })).toEqual([]);
  });

  it("is told all at once", () => {
    const sandbox = under([mount("/etc", "ro"), mount("/md", "ro", { suffixes: [".md"] }), writable("/a")], untrusted, {
      network: { allow: Array.from({ length: 1001 }, (_, n) => ({ to: `h${n}.example.org:443` })) },
    });
    expect(refusals({ sandbox, orchestratorUid: 1000 }).map(({ code }) => code)).toEqual([
      "MOUNT_RESERVED",
      "USER_NOT_ALLOWED",
      "NETWORK_NOT_ENFORCEABLE",
    ]);
  });
});

describe("the group of a cell", () => {
  function userOf(mode: "ro" | "rw", gid: number, rootUser: boolean) {
    const mounts = [mode === "rw" ? writable("/a") : mount("/a", "ro")];
    const policy = { ...untrusted, hardening: { ...untrusted.hardening, rootUser } };
    const planning = planFor(requestFor({ sandbox: under(mounts, policy), owners: { "/host/a": 1000 }, gid }));
    return planning.ok ? planning.plan.user : null;
  }

  it.each(["ro", "rw"] as const)("is 0 for a directory (%s) of group 0 only if the policy allows root", (mode) => {
    expect(userOf(mode, 0, false)).toEqual({ uid: 1000, gid: 65532 });
    expect(userOf(mode, 0, true)).toEqual({ uid: 1000, gid: 0 });
    expect(userOf(mode, 100, false)).toEqual({ uid: 1000, gid: 100 });
  });
});

describe("the user of a cell that writes nothing", () => {
  function uid(owners: Record<string, number>, orchestratorUid: number): number | null {
    const sandbox = under(Object.keys(owners).map((host) => mount(host.replace("/host", ""), "ro")));
    const planning = planFor(requestFor({ sandbox, owners, orchestratorUid }));
    return planning.ok ? planning.plan.user.uid : null;
  }

  it.each([
    ["the one owner of what it reads", { "/host/a": 1000, "/host/b": 1000 }, 1000, 1000],
    [
      "corral's own, if that is an ordinary one, where there are several",
      { "/host/a": 1001, "/host/b": 1000 },
      1000,
      1000,
    ],
    ["nobody where there are several", { "/host/a": 1000, "/host/b": 1001 }, 0, 65532],
    ["nobody where that is root", { "/host/a": 0 }, 0, 65532],
    ["nobody where corral may not speak for the owner", { "/host/a": 1001 }, 1000, 65532],
    ["nobody where it reads nothing", {}, 1000, 65532],
  ] as const)("is %s", (_, owners, orchestratorUid, expected) => {
    expect(uid(owners, orchestratorUid)).toBe(expected);
  });
});
