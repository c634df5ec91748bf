import { describe, expect, it } from "vitest";
import {
  HARDENING,
  type Hardening,
  type HardeningRow,
  policyWeaknesses,
  withinPolicy,
} from "../../src/sandbox/policy.ts";
import { docTable } from "./doc-table.ts";
import { strict } from "./sandboxes.ts";

function weaknesses(asked: Partial<Hardening>, has: Partial<Hardening> = {}): string[] {
  const withLines = (lines: Partial<Hardening>) => ({ ...strict, hardening: { ...strict.hardening, ...lines } });
  return policyWeaknesses(withLines(asked), withLines(has));
}

describe("policyWeaknesses", () => {
  it("finds none in a policy compared with itself", () => {
    expect(policyWeaknesses(strict, strict)).toEqual([]);
  });

  it.each<[keyof Hardening, Partial<Hardening>]>([
    ["rootUser", { rootUser: true }],
    ["readOnlyRoot", { readOnlyRoot: false }],
    ["noNewPrivileges", { noNewPrivileges: false }],
    ["capabilities", { capabilities: ["CAP_KILL"] }],
    ["seccomp", { seccomp: "engine" }],
    ["fileWatches", { fileWatches: true }],
    ["tmpExec", { tmpExec: true }],
  ])("names %s where only it is weaker, and nothing the other way round", (line, weaker) => {
    expect(weaknesses(weaker)).toEqual([line]);
    expect(weaknesses({}, weaker)).toEqual([]);
  });

  it("takes any named runtime for stricter than the default, and two names for incomparable", () => {
    expect(weaknesses({ runtime: "runsc" })).toEqual([]);
    expect(weaknesses({}, { runtime: "runsc" })).toEqual(["runtime"]);
    expect(weaknesses({ runtime: "kata" }, { runtime: "runsc" })).toEqual(["runtime"]);
    expect(weaknesses({ runtime: "runsc" }, { runtime: ["runsc", "default"] })).toEqual([]);
    expect(weaknesses({ runtime: ["runsc", "default"] }, { runtime: ["runsc", "default"] })).toEqual([]);
    expect(weaknesses({ runtime: ["runsc", "default"] }, { runtime: "runsc" })).toEqual(["runtime"]);
    expect(weaknesses({ runtime: "default" }, { runtime: ["runsc", "default"] })).toEqual(["runtime"]);
    expect(weaknesses({}, { driver: "runc" })).toEqual(["driver"]);
    expect(weaknesses({ driver: "engine" }, { driver: "prefer-runc" })).toEqual(["driver"]);
    expect(weaknesses({ driver: "prefer-runc" }, { driver: "runc" })).toEqual(["driver"]);
    expect(weaknesses({ driver: "runc" }, { driver: "prefer-runc" })).toEqual([]);
    expect(weaknesses({ driver: "engine" }, { driver: "auto" })).toEqual([]);
    // It is no container: no policy that says something else is as weak.
    for (const has of [{}, { driver: "auto" }, { driver: "engine" }, { driver: "bwrap" }] as const)
      expect(weaknesses({ driver: "seatbelt" }, has)).toEqual(["driver"]);
    for (const asked of [{}, { driver: "auto" }, { driver: "runc" }, { driver: "seatbelt" }] as const)
      expect(weaknesses(asked, { driver: "seatbelt" })).toEqual([]);
  });

  it("takes sets of capabilities that only overlap for weaker", () => {
    expect(weaknesses({ capabilities: ["CAP_CHOWN"] }, { capabilities: ["CAP_KILL"] })).toEqual(["capabilities"]);
  });

  it("names every weaker line at once", () => {
    expect(weaknesses({ rootUser: true, tmpExec: true })).toEqual(["rootUser", "tmpExec"]);
  });
});

describe("withinPolicy", () => {
  it("keeps the sizes that no limit covers at most the caller's", () => {
    const larger = { ...strict, nofile: 9999, tmpBytes: 1, homeBytes: strict.homeBytes * 2 };
    expect(withinPolicy(larger, strict)).toMatchObject({
      nofile: strict.nofile,
      tmpBytes: 1,
      homeBytes: strict.homeBytes,
    });
  });
});

describe("the table of hardening lines", () => {
  it("is the one in policies/README.md, in its order", async () => {
    expect(await docTable("policies/README.md", ["line", "baseline", "what the baseline means"])).toEqual(
      Object.values(HARDENING).map((row: HardeningRow) => [
        `\`${row.key}\``,
        row.strictest === undefined ? "absent" : `\`${JSON.stringify(row.strictest).replaceAll('"', "")}\``,
        row.meaning,
      ]),
    );
  });
});
