import { describe, expect, it } from "vitest";
import { hostPathOf } from "../../src/sandbox/access.ts";
import { projectSandbox } from "../../src/sandbox/declare.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { NetworkRule } from "../../src/sandbox/network/rule.ts";
import type { Needs } from "../../src/sandbox/sandbox.ts";
import { at, child, mount, project, refusals, roomy, rooted, shown, strict, zones } from "./sandboxes.ts";

const mib = 1024 ** 2;

describe("derive, row by row", () => {
  it("opens nothing where nothing is said", () => {
    const empty = child(rooted(), {});
    expect(empty).toMatchObject({ mounts: [], network: false, workingDir: "/", chain: ["project", "child"] });
  });

  it("gives the parent's access with inherit", () => {
    const parent = zones({ data: "ro", out: "rw" });
    expect(shown(child(parent, { inherit: true }))).toEqual(["/data ro", "/out rw"]);
    expect(shown(child(parent, { inherit: false }))).toEqual([]);
  });

  it.each<[string, Needs, string[]]>([
    ["only reads", { allowRead: [at("/src")] }, ["/src ro"]],
    ["only writes", { allowWrite: [at("/src")] }, ["/src rw"]],
    ["both", { allowRead: [at("/src")], allowWrite: [at("/src/out")] }, ["/src ro", "/src/out rw"]],
    ["inherit with reads", { inherit: true, allowRead: [at("/src")] }, ["/src ro"]],
    ["inherit with writes", { inherit: true, allowWrite: [at("/src")] }, ["/src rw"]],
    ["empty lists", { allowRead: [], allowWrite: [] }, []],
    ["an empty list with inherit", { inherit: true, allowRead: [] }, []],
    ["readonly", { inherit: true, readonly: true }, ["/ ro"]],
    ["readonly with writes", { allowWrite: [at("/src")], readonly: true }, ["/src ro"]],
    ["readonly with both", { allowRead: [at("/src")], allowWrite: [at("/x")], readonly: true }, ["/src ro"]],
    ["readonly: false where the parent writes", { allowRead: [at("/src")], readonly: false }, ["/src ro"]],
  ])("opens the right prefixes with %s", (_, needs, expected) => {
    expect(shown(child(rooted(), needs))).toEqual(expected);
  });

  it("keeps the parent's namespace and host places", () => {
    const narrowed = child(rooted(), { allowRead: [at("/src/lib")] });
    expect(narrowed.mounts).toMatchObject([{ name: "/", path: "/src/lib", host: "/host/src/lib" }]);
    expect(narrowed.rooted).toBe(true);
  });

  it("refuses readonly: false under a parent that writes nowhere, be it for want of files", () => {
    expect(refusals(rooted(true), { inherit: true, readonly: false })).toEqual([
      { code: "READONLY_ESCALATION", by: "project" },
    ]);
    const nowhere = [{ code: "READONLY_ESCALATION", by: "project" }];
    expect(refusals(project([]), { readonly: false })).toEqual(nowhere);
    expect(refusals(child(rooted(), {}), { readonly: false })).toMatchObject([{ code: "READONLY_ESCALATION" }]);
  });

  it("refuses entries that nothing governs, and a write where nothing is writable", () => {
    const parent = zones({ data: "ro", out: "rw" });
    expect(refusals(parent, { allowRead: [at("/etc")], allowWrite: [at("/data/x"), at("/etc")] })).toEqual([
      { code: "PATH_NOT_AVAILABLE", asked: "/etc", by: "project", valid: ["/data", "/out"] },
      { code: "WRITE_NOT_AVAILABLE", asked: "/data/x", has: "ro", by: "project", valid: ["/out"] },
    ]);
  });

  it("takes an entry above several mounts for those mounts, writable where they are", () => {
    const parent = zones({ data: "ro", out: "rw" });
    expect(shown(child(parent, { allowRead: [at("/")] }))).toEqual(["/data ro", "/out ro"]);
    expect(shown(child(parent, { allowWrite: [at("/")] }))).toEqual(["/data ro", "/out rw"]);
  });

  it("does not open by a write entry what the read list leaves out", () => {
    const parent = zones({ data: "ro", out: "rw" });
    expect(shown(child(parent, { allowRead: [at("/out")], allowWrite: [at("/")] }))).toEqual(["/out rw"]);
  });

  it("reads what it may write, whatever the read list says, unless it is read-only", () => {
    const needs = { allowRead: [at("/src")], allowWrite: [at("/src/out"), at("/out")] };
    expect(shown(child(rooted(), needs))).toEqual(["/out rw", "/src ro", "/src/out rw"]);
    expect(shown(child(rooted(), { ...needs, readonly: true }))).toEqual(["/src ro"]);
    expect(shown(child(rooted(), { allowRead: [at("/src")], allowWrite: [at("/")] }))).toEqual(["/ rw"]);
  });

  it("unites overlapping entries and keeps no mount that changes nothing", () => {
    const reads = [at("/src"), at("/src/lib"), at("/src/out"), at("/src")];
    expect(shown(child(rooted(), { allowRead: reads }))).toEqual(["/src ro"]);
    expect(shown(child(rooted(), { allowRead: reads, allowWrite: [at("/src/out")] }))).toEqual([
      "/src ro",
      "/src/out rw",
    ]);
    expect(shown(child(rooted(), { allowRead: [at("/a"), at("/a/b")], allowWrite: [at("/a")] }))).toEqual(["/a rw"]);
  });

  it("does not confuse /data with /data-evil", () => {
    const parent = project([mount("/data", "rw"), mount("/data-evil", "rw")]);
    expect(shown(child(parent, { allowWrite: [at("/data")] }))).toEqual(["/data rw"]);
    expect(refusals(zones({ data: "rw" }), { allowRead: [at("/data-evil")] })).toMatchObject([
      { code: "PATH_NOT_AVAILABLE" },
    ]);
  });

  it("sets the working directory it is given", () => {
    expect(child(rooted(), { inherit: true, workingDir: at("/src") }).workingDir).toBe("/src");
    // It need not be a mount's: the way to one is there as well.
    expect(child(rooted(), { allowRead: [at("/src/lib")], workingDir: at("/src") }).workingDir).toBe("/src");
  });

  it("refuses a working directory that the child itself does not see, whatever the parent does", () => {
    const parent = zones({ data: "ro", out: "rw" });
    expect(refusals(parent, { zones: [{ name: "out" }], workingDir: at("/data") })).toEqual([
      { code: "WORKING_DIR_NOT_AVAILABLE", asked: "/data", valid: ["/out"] },
    ]);
    expect(refusals(parent, { workingDir: at("/data") })).toMatchObject([{ valid: [] }]);
    // What is missing is told once.
    expect(refusals(parent, { zones: [{ name: "x" }], workingDir: at("/x") })).toMatchObject([
      { code: "MOUNT_NOT_AVAILABLE" },
    ]);
  });
});

describe("masking", () => {
  const masked = project([
    mount("/data", "rw"),
    mount("/data/secret", "ro", { host: "/host/empty", name: "data" }),
    mount("/data/secret/open", "rw", { name: "data" }),
  ]);

  it("keeps a mount that hides what the one above would show", () => {
    const narrowed = child(masked, { allowRead: [at("/data")] });
    expect(hostPathOf(narrowed, at("/data/secret/key"))).toBe("/host/empty/key");
    expect(hostPathOf(narrowed, at("/data/secret/open/x"))).toBe("/host/data/secret/open/x");
  });

  it("never carves through a hiding mount", () => {
    const narrowed = child(masked, { allowRead: [at("/data/secret/deep")], allowWrite: [] });
    expect(narrowed.mounts).toMatchObject([{ path: "/data/secret/deep", host: "/host/empty/deep" }]);
  });

  it("holds for host places named by `paths` as well", () => {
    const caller = child(masked, { inherit: true });
    expect(refusals(caller, { paths: [{ name: "p", host: "/host/data/secret/key", mode: "ro" }] })).toMatchObject([
      { code: "MOUNT_NOT_AVAILABLE", asked: "p", valid: ["data"] },
    ]);
    const narrowed = child(caller, { paths: [{ name: "p", host: "/host/data", mode: "ro" }] });
    expect(hostPathOf(narrowed, at("/p/secret/key"))).toBe("/host/empty/key");
  });
});

describe("worker-level paths", () => {
  const GIVEN = [
    { path: "/a", mode: "ro", suffixes: [".md"], maxFileBytes: 5 },
    { path: "/a-evil", mode: "rw" },
    { path: "/b", mode: "rw" },
  ];
  const own = { name: "docs", host: "/elsewhere/docs", mode: "rw", suffixes: [".PDF", "md"], maxFileBytes: 5 } as const;

  const open = (mounts: readonly Mount[]) => project(mounts, { ownPaths: true });

  it("bring their own mounts where the worker is run by itself, and the project lets them", () => {
    const sandbox = child(open([mount("/", "rw")]), { paths: [own] });
    const approval = { write: "ask", delete: "ask" };
    const more = { mode: "rw", suffixes: [".md", ".pdf"], maxFileBytes: 5, approval, own: "brought" };
    expect(sandbox.mounts).toEqual([{ name: "docs", path: "/docs", host: "/elsewhere/docs", ...more }]);
    expect(sandbox.rooted).toBe(false);
    expect(shown(child(open([mount("/", "ro")]), { paths: [own], readonly: false }))).toEqual(["/docs rw"]);
    expect(shown(child(open([]), { paths: [own], readonly: true }))).toEqual(["/docs ro"]);
    // Its calls have what it has, and bring nothing.
    const called = refusals(sandbox, { paths: [{ name: "e", host: "/elsewhere", mode: "ro" }] });
    expect(called).toMatchObject([{ code: "MOUNT_NOT_AVAILABLE" }]);
    expect(child(sandbox, { inherit: true }).mounts).toMatchObject([{ own: "brought" }]);
  });

  it("are else in what the project gives, on its terms, also where the worker is run by itself", () => {
    const terms = { suffixes: [".md"], maxFileBytes: 5, stage: true } as const;
    const ask = { write: "ask", delete: "blocked" } as const;
    const given = project([mount("/a", "ro", terms), mount("/b", "rw", { approval: ask }), mount("/a-evil", "rw")]);
    const inside = child(given, {
      paths: [
        { name: "x", host: "/host/a/deep", mode: "ro" },
        { name: "y", host: "/host/b", mode: "rw" },
      ],
    });
    expect(inside.mounts).toMatchObject([
      { path: "/x", host: "/host/a/deep", mode: "ro", own: "inside", ...terms },
      { path: "/y", host: "/host/b", mode: "rw", own: "inside", approval: ask },
    ]);
    const agreed = { write: "pre_approved", delete: "blocked" } as const;
    expect(
      refusals(given, {
        paths: [
          { name: "w", host: "/host/a", mode: "rw", suffixes: [".md", ".exe"], maxFileBytes: 6 },
          { name: "q", host: "/outside", mode: "rw" },
          { name: "up", host: "/host", mode: "ro" },
          { name: "y", host: "/host/b", mode: "rw", approval: agreed },
        ],
        readonly: false,
        limits: { cpus: 99 },
      }),
    ).toEqual([
      { code: "WRITE_NOT_AVAILABLE", asked: "/a", has: "ro", by: "project", valid: ["/a-evil", "/b"], own: "w" },
      { code: "SUFFIXES_WIDER", path: "/a", asked: [".exe", ".md"], has: [".md"], by: "project", own: "w" },
      { code: "FILE_SIZE_LARGER", path: "/a", asked: 6, has: 5, by: "project", own: "w" },
      { code: "OWN_PATH_OUTSIDE", asked: "q", valid: GIVEN },
      { code: "OWN_PATH_OUTSIDE", asked: "up", valid: GIVEN },
      {
        code: "APPROVAL_LOOSER",
        path: "/b",
        operation: "write",
        asked: "pre_approved",
        has: "ask",
        by: "project",
        own: "y",
      },
      { code: "LIMIT_TOO_LARGE", limit: "cpus", asked: 99, has: 4, by: "policy roomy" },
    ]);
    expect(
      refusals(zones({ a: "ro" }), { paths: [{ name: "a", host: "/host/a", mode: "ro" }], readonly: false }),
    ).toEqual([{ code: "READONLY_ESCALATION", by: "project" }]);
    expect(refusals(project([]), { paths: [own] })).toEqual([{ code: "OWN_PATH_OUTSIDE", asked: "docs", valid: [] }]);
  });

  it("must lie inside the caller's area in a call, and stand there under their own name", () => {
    const caller = child(rooted(), { allowRead: [at("/src")], allowWrite: [at("/src/out")] }, "caller");
    const inside = child(caller, { paths: [{ name: "s", host: "/host/src", mode: "ro" }] });
    expect(inside.mounts).toMatchObject([{ name: "s", path: "/s", host: "/host/src", mode: "ro" }]);
    expect(shown(child(caller, { paths: [{ name: "o", host: "/host/src/out/a", mode: "rw" }] }))).toEqual(["/o rw"]);
    expect(refusals(caller, { paths: [own] })).toMatchObject([{ code: "MOUNT_NOT_AVAILABLE", by: "caller" }]);
    expect(refusals(caller, { paths: [{ name: "e", host: "/host/src-evil", mode: "ro" }] })).toHaveLength(1);
    expect(refusals(caller, { paths: [{ name: "s", host: "/host/src", mode: "rw" }] })).toEqual([
      { code: "WRITE_NOT_AVAILABLE", asked: "/src", has: "ro", by: "caller", valid: ["/src/out"], own: "s" },
    ]);
  });

  it("use whichever place of the caller allows what is asked", () => {
    const twice = project([mount("/a", "ro", { host: "/host/x" }), mount("/b", "rw", { host: "/host/x" })]);
    const caller = child(twice, { inherit: true });
    expect(shown(child(caller, { paths: [{ name: "p", host: "/host/x/y", mode: "rw" }] }))).toEqual(["/p rw"]);
  });

  it("can narrow suffixes and sizes, and never widen them", () => {
    const caller = child(open([]), { paths: [own] }, "caller");
    const path = { name: "docs", host: "/elsewhere/docs", mode: "ro" } as const;
    expect(child(caller, { paths: [path] }).mounts).toMatchObject([{ suffixes: [".md", ".pdf"], maxFileBytes: 5 }]);
    expect(child(caller, { paths: [{ ...path, suffixes: ["md"], maxFileBytes: 4 }] }).mounts).toMatchObject([
      { suffixes: [".md"], maxFileBytes: 4 },
    ]);
    expect(refusals(caller, { paths: [{ ...path, suffixes: [".md", ".exe"], maxFileBytes: 6 }] })).toEqual([
      {
        code: "SUFFIXES_WIDER",
        path: "/docs",
        asked: [".exe", ".md"],
        has: [".md", ".pdf"],
        by: "caller",
        own: "docs",
      },
      { code: "FILE_SIZE_LARGER", path: "/docs", asked: 6, has: 5, by: "caller", own: "docs" },
    ]);
  });
});

describe("constraints and consent", () => {
  const agreedBefore = { write: "pre_approved", delete: "pre_approved" } as const;
  const ask = { write: "ask", delete: "ask" } as const;

  it("lets suffixes and sizes travel with the mount", () => {
    const parent = project([mount("/data", "rw", { suffixes: [".md"], maxFileBytes: 9 })]);
    const deep = child(child(parent, { inherit: true }), { allowRead: [at("/data/x")] });
    expect(deep.mounts).toMatchObject([{ path: "/data/x", suffixes: [".md"], maxFileBytes: 9 }]);
  });

  it("asks where neither the project nor the worker says", () => {
    expect(child(zones({ data: "rw" }), { inherit: true }).mounts[0]?.approval).toEqual(ask);
  });

  it("takes the worker's word where the project says nothing, a mount's own before the one for all", () => {
    const needs = { approval: ask, zones: [{ name: "a", mode: "rw" as const, approval: agreedBefore }, { name: "b" }] };
    const sandbox = child(zones({ a: "rw", b: "rw" }), needs);
    expect(sandbox.mounts.map(({ approval }) => approval)).toEqual([agreedBefore, ask]);
  });

  it("only gets stricter, operation by operation", () => {
    const parent = project([mount("/data", "rw", { approval: { write: "pre_approved", delete: "ask" } })]);
    const stricter = child(parent, { inherit: true, approval: { write: "ask", delete: "blocked" } }, "caller");
    expect(stricter.mounts[0]?.approval).toEqual({ write: "ask", delete: "blocked" });
    expect(refusals(stricter, { zones: [{ name: "data", mode: "rw", approval: agreedBefore }] })).toEqual([
      {
        code: "APPROVAL_LOOSER",
        path: "/data",
        operation: "write",
        asked: "pre_approved",
        has: "ask",
        by: "caller",
      },
      {
        code: "APPROVAL_LOOSER",
        path: "/data",
        operation: "delete",
        asked: "pre_approved",
        has: "blocked",
        by: "caller",
      },
    ]);
  });

  it("does not hold a word for all mounts against those that are only read", () => {
    const parent = project([mount("/in", "ro", { approval: ask }), mount("/out", "rw", { approval: agreedBefore })]);
    const sandbox = child(parent, { inherit: true, approval: agreedBefore });
    expect(sandbox.mounts.map(({ approval }) => approval)).toEqual([ask, agreedBefore]);
  });
});

describe("network, limits and policy", () => {
  it("gives no network unless it is asked for, and then no more than the caller's", () => {
    const parent = project([], { network: { allow: [{ to: "*.example.org:443" }] } });
    expect(child(parent, {}).network).toBe(false);
    expect(child(parent, { network: { allow: [{ to: "a.example.org:443" }] } }).network).toEqual({
      allow: [{ to: "a.example.org:443" }],
    });
    expect(refusals(parent, { network: true })).toEqual([
      {
        code: "NETWORK_NOT_AVAILABLE",
        asked: true,
        has: { allow: [{ to: "*.example.org:443" }] },
        exceeding: [{ kind: "all" }],
        by: "project",
      },
    ]);
    const caller = child(parent, {}, "caller");
    expect(refusals(caller, { network: { allow: [{ to: "a.example.org:443" }] } })).toMatchObject([
      { has: false, by: "caller" },
    ]);
  });

  it("names the rules that exceed, by who took each away", () => {
    const list = (...allow: NetworkRule[]) => ({ allow });
    const [a, b, c] = ["a.org:443", "b.org:443", "c.org:443"].map((to) => ({ to })) as [
      NetworkRule,
      NetworkRule,
      NetworkRule,
    ];
    const parent = project([], { network: list(a, b) });
    const caller = child(child(parent, { network: list(a, b) }, "first"), { network: list(a) }, "second");
    const network = list(a, b, c, { ...a, set: { key: { secret: "k" } } });
    expect(refusals(caller, { network })).toEqual([
      {
        code: "NETWORK_NOT_AVAILABLE",
        asked: network,
        has: list(a),
        exceeding: [{ kind: "rule", rule: b, term: "to" }],
        by: "second",
      },
      {
        code: "NETWORK_NOT_AVAILABLE",
        asked: network,
        has: list(a),
        exceeding: [
          { kind: "rule", rule: c, term: "to" },
          { kind: "rule", rule: { ...a, set: { key: { secret: "k" } } }, term: "set" },
        ],
        by: "project",
      },
    ]);
  });

  it("holds a policy of its own only against what the caller has", () => {
    const parent = project([], {
      network: { allow: [{ to: "a.org:443" }, { to: "a.example.org:443", addresses: ["10.0.0.0/8"] }] },
    });
    const needs = {
      policy: strict,
      network: { allow: [{ to: "a.org:443" }, { to: "b.org:443" }, { to: "a.example.org:443" }] },
    };
    expect(refusals(parent, needs)).toMatchObject([
      { exceeding: [{ rule: { to: "b.org:443" } }], by: "project" },
      {
        exceeding: [{ rule: { to: "a.example.org:443" }, term: "addresses" }, { rule: { to: "a.org:443" } }],
        by: "policy strict",
      },
    ]);
  });

  it("inherits limits, takes smaller ones and refuses larger ones", () => {
    const caller = child(project([]), { limits: { memoryBytes: 64 * mib } }, "caller");
    expect(caller.limits).toEqual({ ...roomy.maxLimits, memoryBytes: 64 * mib });
    expect(child(caller, { limits: { pids: 9 } }).limits).toEqual({ ...caller.limits, pids: 9 });
    expect(refusals(caller, { limits: { memoryBytes: 65 * mib, pids: 9999 } })).toEqual([
      { code: "LIMIT_TOO_LARGE", limit: "memoryBytes", asked: 65 * mib, has: 64 * mib, by: "caller" },
      { code: "LIMIT_TOO_LARGE", limit: "pids", asked: 9999, has: 512, by: "policy roomy" },
    ]);
    expect(refusals(project([], { limits: { pids: 100 } }), { limits: { pids: 101 } })).toMatchObject([
      { limit: "pids", has: 100, by: "project" },
    ]);
  });

  it("takes a stricter policy with its ceilings, and refuses a weaker one line by line", () => {
    const caller = child(project([]), { policy: strict, network: { allow: [{ to: "a.example.org:443" }] } }, "caller");
    expect(caller.policy.name).toBe("strict");
    expect(caller.limits.memoryBytes).toBe(512 * mib);
    expect(refusals(caller, { policy: roomy })).toEqual([
      {
        code: "POLICY_WEAKER",
        asked: "roomy",
        has: "strict",
        lines: ["rootUser", "capabilities", "seccomp", "fileWatches", "tmpExec", "secrets"],
        by: "caller",
      },
    ]);
  });

  it("refuses what exceeds the worker's own policy, naming the policy", () => {
    expect(refusals(project([]), { policy: strict, network: true, limits: { memoryBytes: 1024 * mib } })).toMatchObject(
      [
        { code: "NETWORK_NOT_AVAILABLE", by: "policy strict" },
        { code: "LIMIT_TOO_LARGE", by: "policy strict" },
      ],
    );
  });
});

describe("a writable root", () => {
  const loose = { ...strict, name: "loose", hardening: { ...strict.hardening, readOnlyRoot: false } };
  const given = projectSandbox({ mounts: [], rooted: false }, loose);

  it("is given to a worker that asks, if its policy and each caller allow it", () => {
    const caller = child(given, { writableRoot: true }, "caller");
    expect(caller.writableRoot).toBe(true);
    expect(child(given, { inherit: true }).writableRoot).toBeUndefined();
    expect(child(caller, { writableRoot: true }, "below").writableRoot).toBe(true);
    const without = child(given, {}, "without");
    expect(refusals(without, { writableRoot: true })).toEqual([{ code: "ROOT_NOT_WRITABLE", by: "without" }]);
    expect(refusals(project([]), { writableRoot: true })).toEqual([
      { code: "ROOT_NOT_WRITABLE", by: `policy ${project([]).policy.name}` },
    ]);
    expect(refusals(given, { writableRoot: true, policy: strict })).toContainEqual({
      code: "ROOT_NOT_WRITABLE",
      by: `policy ${strict.name}`,
    });
  });
});

describe("secrets inside", () => {
  const given = project([], { secrets: ["token", "key"] });

  it("are given by name alone, in one order, and to no worker that does not ask", () => {
    expect(child(given, { secrets: ["token", "key", "token"] }).secrets).toEqual(["key", "token"]);
    expect(child(given, { inherit: true }).secrets).toBeUndefined();
    expect(child(given, { secrets: [] }).secrets).toBeUndefined();
    expect(child(project([]), {}).secrets).toBeUndefined();
  });

  it("are at most the caller's, and a violation says who took one away", () => {
    expect(refusals(project([]), { secrets: ["token"] })).toEqual([
      { code: "SECRET_NOT_AVAILABLE", asked: "token", by: "project", valid: [] },
    ]);
    const caller = child(given, { secrets: ["key"] }, "caller");
    const below = child(caller, { secrets: ["key"] }, "below");
    expect(refusals(below, { secrets: ["key", "token"] })).toEqual([
      { code: "SECRET_NOT_AVAILABLE", asked: "token", by: "caller", valid: ["key"] },
    ]);
    expect(refusals(child(below, {}, "last"), { secrets: ["key"] })).toMatchObject([{ by: "last", valid: [] }]);
  });

  it("are none under a policy that forbids them, of the project or of the worker", () => {
    const forbidden = { asked: "token", by: "policy strict", valid: [] };
    expect(refusals(project([], { secrets: ["token"] }, strict), { secrets: ["token"] })).toMatchObject([forbidden]);
    expect(refusals(given, { secrets: ["token"], policy: strict })).toMatchObject([forbidden]);
    expect(child(given, { policy: strict }).secrets).toBeUndefined();
  });
});

describe("all violations at once", () => {
  it("names each of them, and each once", () => {
    const parent = zones({ data: "ro", out: "rw" });
    const caller = child(parent, { inherit: true, readonly: true, policy: strict, limits: { cpus: 1 } }, "caller");
    const codes = refusals(caller, {
      zones: [{ name: "out", mode: "rw" }, { name: "gone" }, { name: "gone" }],
      readonly: false,
      network: true,
      limits: { cpus: 2 },
      policy: roomy,
    }).map(({ code }) => code);
    expect(codes).toEqual([
      "READONLY_ESCALATION",
      "WRITE_NOT_AVAILABLE",
      "MOUNT_NOT_AVAILABLE",
      "NETWORK_NOT_AVAILABLE",
      "LIMIT_TOO_LARGE",
      "POLICY_WEAKER",
    ]);
  });
});

describe("narrowings", () => {
  it("say who took what, so that a violation names the right ancestor", () => {
    const first = child(rooted(), { allowRead: [at("/src")], allowWrite: [at("/src/out")], network: true }, "first");
    expect(first.narrowings).toEqual([
      { by: "first", kind: "mount", path: "/", from: "rw", to: "none" },
      { by: "first", kind: "mount", path: "/src", from: "rw", to: "ro" },
      { by: "first", kind: "approval", path: "/src/out", operation: "write", from: "unset", to: "ask" },
      { by: "first", kind: "approval", path: "/src/out", operation: "delete", from: "unset", to: "ask" },
    ]);
    const second = child(first, { inherit: true, readonly: true }, "second");
    expect(second.narrowings.slice(4)).toEqual([
      { by: "second", kind: "mount", path: "/src/out", from: "rw", to: "ro" },
      { by: "second", kind: "network", from: true, to: false },
    ]);
    expect(refusals(second, { allowWrite: [at("/src/out")] })).toMatchObject([{ by: "second" }]);
    expect(refusals(second, { allowWrite: [at("/src/lib")] })).toMatchObject([{ by: "first" }]);
    expect(refusals(second, { allowRead: [at("/docs")] })).toMatchObject([{ by: "first" }]);
    expect(refusals(second, { network: true })).toMatchObject([{ by: "second" }]);
  });

  it("are none where nothing changes", () => {
    const parent = child(rooted(), { inherit: true, network: true }, "first");
    const same = child(parent, { inherit: true, network: true }, "second");
    expect(same).toEqual({ ...parent, chain: [...parent.chain, "second"] });
  });
});
