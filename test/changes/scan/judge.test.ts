import { posix } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type EntryFacts, rawNameOf } from "../../../src/changes/model/changeset.ts";
import { BytesBudget, type Draft, judged } from "../../../src/changes/scan/scan.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";

const facts = (more: Partial<EntryFacts> = {}): EntryFacts => ({
  type: "file",
  inode: "1",
  size: 4,
  mode: 0o644,
  mtimeNs: "1",
  ctimeNs: "1",
  ...more,
});

const created = (path: string, more: Partial<Draft> = {}): Draft => ({
  names: path.split("/").map(rawNameOf),
  kind: "create",
  type: "file",
  base: null,
  next: facts(),
  ...more,
});

const link = (path: string, linkText: string): Draft =>
  created(path, { type: "link", next: facts({ type: "link" }), linkText });

const deleted = (path: string, type: "file" | "directory" = "file"): Draft =>
  created(path, { kind: "delete", type, base: facts({ type }), next: null });

function refusal(draft: Draft, mount: Partial<Mount> = {}, closed: readonly string[] = [], limit = 100): string | null {
  const own: Mount = { name: "data", path: "/data" as VirtualPath, host: "/host", mode: "rw", ...mount };
  const pathOf = (names: readonly string[]) =>
    names.some((name) => name.includes("\xff")) ? null : (posix.join(own.path, ...names) as VirtualPath);
  const view = { mount: own, pathOf, closed: closed as VirtualPath[] };
  return judged(draft, view, new BytesBudget(limit)).refusal;
}

describe("a change is refused", () => {
  it.each<[string, Draft, Partial<Mount>]>([
    ["that makes a FIFO, a socket or a device", created("x", { type: "other", next: null }), {}],
    ["that would run as its owner", created("x", { next: facts({ mode: 0o4755 }) }), {}],
    ["that would run as its group", created("x", { next: facts({ mode: 0o2755 }) }), {}],
    ["whose name is no text", created("x", { names: ["\xff"] }), {}],
    ["in place of what may not be read", created("x", { overHidden: true }), {}],
    ["where writing is blocked", created("x"), { approval: { write: "blocked", delete: "pre_approved" } }],
    ["where deleting is blocked", deleted("x"), { approval: { write: "pre_approved", delete: "blocked" } }],
    ["where nothing can be written", created("x"), { mode: "ro" }],
    ["that has another suffix", created("x.png"), { suffixes: [".txt"] }],
    ["of a file with another suffix", deleted("x.png"), { suffixes: [".txt"] }],
    ["that is too large", created("x", { next: facts({ size: 11 }) }), { maxFileBytes: 10 }],
    ["that is more than the run may write", created("x", { next: facts({ size: 101 }) }), {}],
    ["that is a link to an absolute path", link("x", "/etc/passwd"), {}],
    ["that is a link whose text is none", created("x", { type: "link", next: facts({ type: "link" }) }), {}],
  ])("%s", (_, draft, mount) => {
    expect(refusal(draft, mount)).not.toBeNull();
  });

  it("at its own path once, where the view begins above its mount and its name is no text", () => {
    const mount: Mount = { name: "out", path: "/out/x/y" as VirtualPath, host: "/host/x/y", mode: "rw" };
    const pathOf = (names: readonly string[]) =>
      names.includes("\xff") ? null : (posix.join("/out", ...names) as VirtualPath);
    const { path, refusal } = judged(
      created("x/y/f", { names: ["x", "y", "\xff"] }),
      { mount, pathOf, closed: [] },
      new BytesBudget(100),
    );
    expect([path, refusal]).toEqual(["/out/x/y/?", "its name is not UTF-8"]);
  });

  it("for a suffix or a size with what would be allowed", () => {
    expect(refusal(created("x.png"), { suffixes: [".md", ".txt"] })).toBe(
      "only files ending in .md, .txt are allowed there",
    );
    expect(refusal(created("x", { next: facts({ size: 11 }) }), { maxFileBytes: 10 })).toBe(
      "it has 11 bytes, and at most 10 bytes are allowed there",
    );
  });

  it("that takes away or replaces what leads to another mount, and not for others beside it", () => {
    const closed = ["/data/a/own"];
    for (const draft of [deleted("a", "directory"), link("a", "b"), created("a"), created("a/own")])
      expect(refusal(draft, {}, closed)).not.toBeNull();
    const folder = created("a", { type: "directory", next: facts({ type: "directory" }) });
    for (const draft of [folder, created("a/b"), created("a/owner"), deleted("b", "directory")])
      expect(refusal(draft, {}, closed)).toBeNull();
  });

  it("beyond what the run may write in all, in the order of the changes", () => {
    const budget = new BytesBudget(10);
    const mount: Mount = { name: "data", path: "/data" as VirtualPath, host: "/host", mode: "rw" };
    const view = { mount, pathOf: (names: readonly string[]) => `/data/${names.join("/")}` as VirtualPath, closed: [] };
    const refusals = ["a", "b", "c"].map((name) => judged(created(name), view, budget).refusal);
    expect(refusals).toEqual([null, null, "with this change, more than 10 bytes would be written"]);
  });

  it.each(["..", "../x", "a/../../x", "./../x", "../../data/x", "a/../b", "a/b/../../c", "./a/.."])(
    "that is a link to %s, which leads out or could",
    (text) => {
      expect(refusal(link("x", text))).not.toBeNull();
    },
  );

  it.each(["y", "a/b", "./y", "x", "."])("and not where it is a link to %s", (text) => {
    expect(refusal(link("x", text))).toBeNull();
  });

  it("and not where a link leads up to what is still inside", () => {
    expect(["..", "../y", "../../y"].map((text) => refusal(link("a/x", text)) === null)).toEqual([true, true, false]);
  });
});

describe("links that are not refused", () => {
  /** Where a path leads when it is walked as the kernel walks it; null for more than forty links. */
  function walked(links: ReadonlyMap<string, string>, start: string, text: string): string | null {
    let [at, budget] = [start, 40];
    const steps = text.split("/");
    while (steps.length > 0) {
      const step = steps.shift() ?? "";
      if (step === "" || step === ".") continue;
      const next = step === ".." ? posix.dirname(at) : posix.join(at, step);
      const leads = links.get(next);
      if (leads === undefined) at = next;
      else if (budget > 0) {
        budget -= 1;
        steps.unshift(...leads.split("/"));
      } else return null;
      if (!`${at}/`.startsWith("/data/")) return at;
    }
    return at;
  }

  it("lead nowhere outside together, however they are chained", () => {
    const step = fc.constantFrom("a", "b", "..", ".", "");
    const text = fc.array(step, { minLength: 1, maxLength: 5 }).map((steps) => steps.join("/") || ".");
    const place = fc.array(fc.constantFrom("a", "b"), { minLength: 1, maxLength: 3 }).map((names) => names.join("/"));
    fc.assert(
      fc.property(fc.dictionary(place, text, { maxKeys: 6 }), (all) => {
        const fit = Object.entries(all).filter(([at, to]) => refusal(link(at, to)) === null);
        const links = new Map(fit.map(([at, to]) => [`/data/${at}`, to]));
        for (const [at, to] of links) {
          // A link stands in a real folder: nothing is applied below a link.
          if ([...links.keys()].some((other) => at.startsWith(`${other}/`))) continue;
          const end = walked(links, posix.dirname(at), to);
          if (end !== null) expect(`${end}/`).toMatch(/^\/data\//);
        }
      }),
      { numRuns: 3000 },
    );
  });
});
