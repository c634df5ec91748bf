import { describe, expect, it } from "vitest";
import { type Grounds, type Judgement, judgeGrant, type Level } from "../../../src/run/grants/judge.ts";
import type { GrantMode } from "../../../src/run/model/grantee.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";
import { at, child, mount, project, rooted, shown, zones } from "../../sandbox/sandboxes.ts";
import { level } from "./chain.ts";

const PROJECT = zones({ inbox: "ro", out: "rw" });
const EMPTY = child(PROJECT, {}, "w");

function judged(
  chain: readonly Level[],
  path: string,
  mode: GrantMode = "read",
  grounds: Partial<Grounds> = {},
): Judgement {
  const around: Grounds = { project: PROJECT, ownFiles: [], refusalOf: () => null, ...grounds };
  return judgeGrant({ directory: at(path), mode }, chain, around);
}

function refusal(judgement: Judgement): string {
  return judgement.ok ? "granted" : judgement.refusal.code;
}

function preview(judgement: Judgement): string[] {
  if (!judgement.ok) throw new Error(judgement.refusal.message);
  return shown(judgement.preview);
}

describe("a directory that the project names", () => {
  it("is granted from the project to a root run, under its name", () => {
    const judgement = judged([level("w", EMPTY)], "/inbox/2024");
    expect(judgement).toMatchObject({ ok: true, had: false, first: 0, host: "/host/inbox/2024" });
    expect(preview(judgement)).toEqual(["/inbox/2024 ro"]);
  });

  it("cannot be written where the project only reads it, whoever would agree", () => {
    expect(refusal(judged([level("w", EMPTY)], "/inbox", "write"))).toBe("GRANT_NOT_ABOVE");
    expect(preview(judged([level("w", EMPTY)], "/out", "write"))).toEqual(["/out rw"]);
  });

  it("can be written where the project leaves that to be granted, by the worker that asks and no other", () => {
    const grantable = true;
    const leaves = project([
      mount("/inbox", "ro", { grantable }),
      mount("/inbox/fixed", "ro", { host: "/host/other" }),
    ]);
    const reader = child(leaves, { zones: [{ name: "inbox" }] });
    expect(reader.mounts.some((one) => one.grantable)).toBe(false);
    expect(shown(child(leaves, { inherit: true }))).toEqual(["/inbox ro", "/inbox/fixed ro"]);
    const judgement = judged([level("w", reader)], "/inbox", "write", { project: leaves });
    expect(preview(judgement)).toEqual(["/inbox rw", "/inbox/fixed ro"]);
    expect(judgement.ok && judgement.preview.mounts.some((one) => one.grantable)).toBe(false);
    // By its own path of the host it is the same directory.
    expect(preview(judged([level("w", child(leaves, {}))], "/host/inbox", "write", { project: leaves }))).toContain(
      "/host/inbox rw",
    );
    const bound = [level("w", reader, { dynamic: null })];
    expect(refusal(judged(bound, "/inbox", "write", { project: leaves }))).toBe("GRANT_NOT_DYNAMIC");
    expect(refusal(judged([level("w", reader)], "/inbox/fixed", "write", { project: leaves }))).toBe("GRANT_NOT_ABOVE");
  });

  it("comes from the nearest caller that has it, and only those below are granted it", () => {
    const root = child(PROJECT, { zones: [{ name: "inbox" }] }, "root");
    const middle = child(root, {}, "middle");
    const chain = [level("root", root, { dynamic: null }), level("middle", middle), level("leaf", child(middle, {}))];
    expect(judged(chain, "/inbox")).toMatchObject({ ok: true, first: 1 });
    expect(judged(chain.with(1, level("middle", root)), "/inbox")).toMatchObject({ ok: true, first: 2 });
  });

  it("is granted to every caller that lacks it, and refused where one of them may not be, by name", () => {
    const leaf = level("leaf", child(child(EMPTY, {}), {}));
    const chain = [level("root", EMPTY), level("middle", child(EMPTY, {})), leaf];
    expect(judged(chain, "/inbox")).toMatchObject({ ok: true, first: 0 });
    const refused = judged(chain.with(1, level("middle", child(EMPTY, {}), { dynamic: null })), "/inbox");
    expect(refusal(refused)).toBe("GRANT_NOT_DYNAMIC");
    expect(!refused.ok && refused.refusal.message).toContain("'middle'");
  });

  it("that a run has already is not asked about", () => {
    const worker = child(PROJECT, { zones: [{ name: "inbox" }] });
    expect(judged([level("w", worker, { dynamic: null })], "/inbox/a")).toMatchObject({ ok: true, had: true });
  });
});

describe("a directory of the host", () => {
  it("stands at its own path, and is granted to the whole chain", () => {
    const chain = [level("root", EMPTY), level("leaf", child(EMPTY, {}))];
    const judgement = judged(chain, "/srv/src", "write");
    expect(judgement).toMatchObject({ ok: true, first: 0, host: "/srv/src" });
    expect(preview(judgement)).toEqual(["/srv/src rw"]);
  });

  it("is refused by any run of the chain that does not allow it, wherever it stands", () => {
    const runs = [level("root", EMPTY), level("middle", EMPTY), level("leaf", EMPTY)];
    for (const [index, { worker }] of runs.entries()) {
      const refused = judged(runs.with(index, level(worker.name, EMPTY, { within: ["/srv/docs"] })), "/srv/src");
      expect(refusal(refused)).toBe("GRANT_OUTSIDE");
      expect(!refused.ok && refused.refusal.message).toContain("at or below one of: /srv/docs.");
    }
  });

  it("is held against the allowed folders by whole components", () => {
    const allows = (folder: string) => refusal(judged([level("w", EMPTY, { within: [folder] })], "/srv/src-evil"));
    expect(["/srv/src", "/srv/src-evil/a", "/srv/src-evil", "/srv", "/"].map(allows)).toEqual([
      "GRANT_OUTSIDE",
      "GRANT_OUTSIDE",
      "granted",
      "granted",
      "granted",
    ]);
  });

  it("is never one that no mount may be", () => {
    const refusalOf = (host: string) => (host === "/srv/engine" ? "it lies in the Engine's data" : null);
    const refused = judged([level("w", EMPTY)], "/srv/engine", "read", { refusalOf });
    expect(refusal(refused)).toBe("GRANT_SOURCE_REFUSED");
  });

  it.each([
    "/",
    "/etc",
    "/etc/ssl",
    "/proc/1",
    "/root",
    "/root/.ssh",
    "/tmp",
    "/var/lib/docker",
    "/home/worker",
    "/home",
  ])("is never %s, which is the container's own", (path) => {
    expect(refusal(judged([level("w", EMPTY)], path))).toBe("GRANT_RESERVED");
  });

  it.each(["/root/checkout", "/home/alice/checkout", "/tmp/checkout"])(
    "can be %s, where the cell has nothing",
    (path) => {
      expect(judged([level("w", EMPTY)], path)).toMatchObject({ ok: true, had: false, host: path });
    },
  );

  it("can be upgraded from reading to writing, as a request of its own", () => {
    const first = judged([level("w", EMPTY)], "/srv/src");
    if (!first.ok) throw new Error("refused");
    expect(refusal(judged([level("w", first.preview)], "/srv/src", "write"))).toBe("granted");
    expect(preview(judged([level("w", first.preview)], "/srv/src", "write"))).toEqual(["/srv/src rw"]);
  });

  it("cannot be named in a rooted project, whose names are all paths", () => {
    const root = rooted();
    const worker = child(root, {});
    const judgement = judged([level("w", worker)], "/srv/src", "read", { project: root });
    expect(judgement).toMatchObject({ ok: true, host: "/host/srv/src" });
  });
});

describe("a host directory that is known by another name", () => {
  const limits = project([
    mount("/notes", "rw", { host: "/srv/notes", suffixes: [".md"] }),
    mount("/shut", "rw", { host: "/srv/shut", approval: { write: "blocked", delete: "blocked" } }),
    mount("/books", "ro", { host: "/srv/books" }),
  ]);
  const worker = [level("w", child(limits, {}))];

  it("keeps the project's suffixes", () => {
    const judgement = judged(worker, "/srv/notes/a", "write", { project: limits });
    expect(judgement).toMatchObject({ preview: { mounts: [{ path: "/srv/notes/a", suffixes: [".md"] }] } });
  });

  it("cannot be written where the project blocks it or only reads it", () => {
    expect(refusal(judged(worker, "/srv/shut/a", "write", { project: limits }))).toBe("GRANT_BLOCKED");
    expect(refusal(judged(worker, "/srv/books", "write", { project: limits }))).toBe("GRANT_NOT_ABOVE");
  });

  it("keeps all of that below a directory that holds them", () => {
    const judgement = judged(worker, "/srv", "write", { project: limits });
    expect(preview(judgement)).toEqual(["/srv rw", "/srv/books ro", "/srv/notes rw", "/srv/shut rw"]);
    expect(judgement).toMatchObject({
      preview: { mounts: [{}, {}, { suffixes: [".md"] }, { approval: { write: "blocked", delete: "blocked" } }] },
    });
  });

  it("keeps what a worker of the chain declared for itself", () => {
    const own = child(
      { ...limits, ownPaths: true },
      { paths: [{ name: "n", host: "/srv/own", mode: "ro", suffixes: [".txt"] }] },
    );
    const judgement = judged([level("w", own)], "/srv/own", "write", { project: limits });
    expect(judgement).toMatchObject({ preview: { mounts: [{ path: "/n" }, { path: "/srv/own", mode: "rw" }] } });
    expect(judgement).toMatchObject({ preview: { mounts: [{}, { suffixes: [".txt"] }] } });
  });
});

describe("a path of a worker's own file", () => {
  const open: Sandbox = { ...PROJECT, ownPaths: true };
  const own = child(open, { paths: [{ name: "src", host: "/srv/src", mode: "ro", suffixes: [".md"] }] });

  it("can be upgraded where it was run by itself, and keeps its constraints", () => {
    const judgement = judged([level("w", own)], "/src", "write");
    expect(judgement).toMatchObject({ ok: true, first: 0, host: "/srv/src" });
    expect(judgement).toMatchObject({ preview: { mounts: [{ path: "/src", mode: "rw", suffixes: [".md"] }] } });
  });

  it("of a called worker is its caller's directory, and is asked for by that name", () => {
    expect(refusal(judged([level("root", EMPTY), level("leaf", own)], "/src", "write"))).toBe("GRANT_NOT_ABOVE");
  });
});

describe("a worker", () => {
  it("is granted nothing where its file does not say so", () => {
    expect(refusal(judged([level("w", EMPTY, { dynamic: null })], "/inbox"))).toBe("GRANT_NOT_DYNAMIC");
  });

  it("is granted nothing past what its caller took away for this one call", () => {
    expect(refusal(judged([level("w", EMPTY, { limited: true })], "/inbox"))).toBe("GRANT_LIMITED_CALL");
  });

  it("that declares `readonly: true` is granted no writing", () => {
    const chain = [level("w", EMPTY, { readonly: true })];
    expect([refusal(judged(chain, "/out", "write")), refusal(judged(chain, "/out"))]).toEqual([
      "GRANT_READONLY",
      "granted",
    ]);
  });

  it("is granted so many directories and no more, but an upgrade of one that it has", () => {
    const had = judged([level("w", EMPTY)], "/srv/a");
    if (!had.ok) throw new Error("refused");
    const full = [level("w", had.preview, { dynamic: { within: null, max: 1 }, directories: new Set([at("/srv/a")]) })];
    expect(refusal(judged(full, "/srv/b"))).toBe("GRANT_LIMIT");
    expect(refusal(judged(full, "/srv/a", "write"))).toBe("granted");
  });

  it("never writes the project's own files, and may read them", () => {
    const ownFiles = ["/srv/p/corral.yaml", "/srv/p/workers"];
    const chain = [level("w", EMPTY)];
    for (const path of ["/srv/p", "/srv/p/workers", "/srv"]) {
      expect(refusal(judged(chain, path, "write", { ownFiles }))).toBe("GRANT_SOURCE_REFUSED");
      expect(refusal(judged(chain, path, "read", { ownFiles }))).toBe("granted");
    }
    expect(refusal(judged(chain, "/srv/p/src", "write", { ownFiles }))).toBe("granted");
  });
});

describe("a refusal", () => {
  it("says what it was about and what to do, and names only the folders that the worker may ask for", () => {
    const chain = [level("w", EMPTY, { within: ["/home/somebody/secret"] })];
    const refused = judged(chain, "/inbox");
    expect(!refused.ok && refused.refusal.message).toBe(
      "Reading '/inbox' was not granted. This worker may only be granted directories below the folders of its `dynamic.within`. Ask for a directory at or below one of: /home/somebody/secret.",
    );
  });
});
