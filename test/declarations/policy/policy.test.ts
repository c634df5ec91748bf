import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { ceilingOf, listPolicies, loadPolicy, parsePolicy } from "../../../src/declarations/policy/policy.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";
import { BASELINE, policyWeaknesses } from "../../../src/sandbox/policy.ts";

const REST = `limits:
  timeout: { default: 1m, max: 15m }
  memory: { default: 256m, max: 2g }
  cpus: { default: 1, max: 2 }
  pids: { default: 64, max: 256 }
  output: { default: 1m, max: 64m }
  disk: { default: 64m, max: 4g }
tmp: 64m
home: 16m
nofile: 1024
`;

function policy(hardening: string, network = "network: false") {
  return parsePolicy(`name: p\ndescription: d\n${network}\nhardening: ${hardening}\n${REST}`, "p.yaml", "p");
}

function problemsIn(parse: () => unknown): string[] {
  try {
    parse();
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`);
  }
}

const LOOSER = [
  ["root_user", "true", { rootUser: true }],
  ["read_only_root", "false", { readOnlyRoot: false }],
  ["no_new_privileges", "false", { noNewPrivileges: false }],
  ["capabilities", "[CAP_SETUID, CAP_CHOWN]", { capabilities: ["CAP_CHOWN", "CAP_SETUID"] }],
  ["file_watches", "true", { fileWatches: true }],
  ["tmp_exec", "true", { tmpExec: true }],
  ["secrets", "allowed", { secrets: "allowed" }],
  ["driver", "seatbelt", { driver: "seatbelt" }],
] as const;

describe("the policies of the package", () => {
  it("are five, and all of them can be loaded", async () => {
    const policies = await listPolicies({ dirs: [] });
    expect(policies.map(({ name }) => name)).toEqual(["batch", "ci", "default", "seatbelt", "untrusted"]);
    for (const { name } of policies) expect((await loadPolicy(name, { dirs: [] })).name).toBe(name);
  });

  it("are ordered: untrusted and batch are the baseline, and nothing is harder than untrusted", async () => {
    const untrusted = await loadPolicy("untrusted", { dirs: [] });
    expect(untrusted).toMatchObject({ hardening: BASELINE, network: false });
    expect((await loadPolicy("batch", { dirs: [] })).hardening).toEqual(BASELINE);
    for (const { name } of await listPolicies({ dirs: [] })) {
      const other = await loadPolicy(name, { dirs: [] });
      expect(policyWeaknesses(untrusted, other)).toEqual([]);
      for (const [limit, max] of Object.entries(untrusted.maxLimits)) {
        expect(other.maxLimits[limit as keyof typeof other.maxLimits]).toBeGreaterThanOrEqual(max);
      }
    }
  });

  it("loosen only what they are for", async () => {
    const loosened = async (name: string) =>
      policyWeaknesses(await loadPolicy(name, { dirs: [] }), await loadPolicy("untrusted", { dirs: [] }));
    expect(await loosened("default")).toEqual(["rootUser", "fileWatches", "secrets", "limitScope"]);
    expect(await loosened("ci")).toEqual(["fileWatches", "tmpExec"]);
    expect(await loosened("seatbelt")).toEqual(["fileWatches", "limitScope", "driver"]);
  });
});

describe("a policy file", () => {
  it("has the baseline wherever it says nothing about hardening", () => {
    expect(policy("{}").hardening).toEqual(BASELINE);
    expect(parsePolicy(`name: p\ndescription: d\n${REST}hardening: {}\n`, "p.yaml", "p").network).toBe(false);
  });

  it.each(LOOSER)("may loosen %s to %s only with a reason", (key, value, expected) => {
    expect(problemsIn(() => policy(`{ ${key}: ${value} }`))).toEqual([
      expect.stringMatching(new RegExp(`^4:\\d+ hardening\\.${key} is looser than the baseline .*why`)),
    ]);
    expect(policy(`{ ${key}: { value: ${value}, why: "it is needed" } }`).hardening).toEqual({
      ...BASELINE,
      ...expected,
    });
  });

  it("may loosen seccomp only with a reason, and only if it says that files may be watched", () => {
    const loose = 'seccomp: { value: engine, why: "it is needed" }';
    expect(problemsIn(() => policy("{ seccomp: engine }"))).toEqual([
      expect.stringMatching(/^4:\d+ hardening\.seccomp is looser than the baseline .*why/),
    ]);
    expect(problemsIn(() => policy(`{ ${loose} }`))).toEqual([
      expect.stringMatching(/^4:12 hardening\.file_watches cannot be `false` with `seccomp: engine`/),
    ]);
    expect(policy(`{ ${loose}, file_watches: { value: true, why: "it is needed" } }`).hardening).toEqual({
      ...BASELINE,
      seccomp: "engine",
      fileWatches: true,
    });
  });

  it.each(["true", "{ allow: ['example.org:443'] }"])("may allow the network as %s only with a reason", (value) => {
    expect(problemsIn(() => policy("{}", `network: ${value}`))[0]).toContain(
      "3:10 network is looser than the baseline (false)",
    );
    expect(policy("{}", `network: { value: ${value}, why: "it is needed" }`).network).not.toBe(false);
  });

  it("checks each line of an allow list", () => {
    const network = 'network: { value: { allow: ["example.org"] }, why: "it is needed" }';
    expect(problemsIn(() => policy("{}", network))[0]).toMatch(/^3:29 network\.value\.allow\.0 .*port is missing/);
  });

  it("may name a runtime or an empty allow list without one, since neither loosens anything", () => {
    expect(
      policy("{ runtime: runsc, root_user: false, capabilities: [] }", "network: { allow: [] }").hardening.runtime,
    ).toBe("runsc");
    expect(policy("{ runtime: [runsc, default] }").hardening.runtime).toEqual(["runsc", "default"]);
    expect(problemsIn(() => policy("{ runtime: [default, runsc] }"))[0]).toMatch(/`default` must be the last/);
  });

  it.each([
    ["{ root_user: { value: true } }", "4:25 hardening.root_user.why is missing"],
    ["{ root_user: { value: true, why: no } }", /^4:\d+ hardening\.root_user\.why must give the reason/],
    ["{ root_user: { why: because it must } }", /^4:\d+ hardening\.root_user\.value is missing/],
    ["{ root_user: maybe }", /^4:\d+ hardening\.root_user must be `true` or `false`, not "maybe"/],
    [
      "{ capabilities: { value: [CHOWN], why: it is needed } }",
      /^4:\d+ hardening\.capabilities\.value\.0 must be a capability/,
    ],
    ["{ runtime: 'a b' }", "4:23 hardening.runtime must be the name of an Engine runtime"],
    ["{ secomp: corral }", /^4:14 hardening\.secomp unknown key `secomp`, did you mean `seccomp`/],
    ["{ seccomp: unconfined }", /^4:\d+ hardening\.seccomp must be "corral" or "engine"/],
  ])("hardening: %s is refused at its place", (hardening, expected) => {
    const [first] = problemsIn(() => policy(hardening));
    if (typeof expected === "string") expect(first).toBe(expected);
    else expect(first).toMatch(expected);
  });

  it("must be named like its file and give a default and a ceiling for every limit", () => {
    const text = `name: q\ndescription: d\nhardening: {}\n${REST.replace("default: 1m, max: 15m", "default: 1h, max: 15m").replace("  pids: { default: 64, max: 256 }\n", "").replace("2g", "lots")}`;
    expect(problemsIn(() => parsePolicy(text, "p.yaml", "p"))).toEqual([
      '1:7 name must be "p", not "q"',
      "5:3 limits.pids is missing",
      "5:23 limits.timeout.default must not be larger than `max`",
      "6:33 limits.memory.max must be a size such as `512k`, `64m`, `1g`, or a number of bytes",
    ]);
  });
});

describe("finding a policy", () => {
  it("suggests the nearest name", async () => {
    await expect(loadPolicy("untrustd", { dirs: [] })).rejects.toThrow(
      "There is no policy `untrustd`, did you mean `untrusted`?",
    );
  });
});

describe("a project's policy", () => {
  const folderWith = async (files: Readonly<Record<string, string>>): Promise<string> => {
    const dir = await mkdtemp(join(tmpdir(), "corral-policies-"));
    onTestFinished(() => rm(dir, { recursive: true, force: true }));
    for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
    return dir;
  };

  it("is found beside Corral's own", async () => {
    const text = `name: ours\ndescription: ours\nhardening: {}\n${REST}`;
    const dir = await folderWith({ "ours.yaml": text, "notes.txt": "" });
    expect((await loadPolicy("ours", { dirs: [dir] })).description).toBe("ours");
    expect((await loadPolicy("ci", { dirs: [dir] })).name).toBe("ci");
    const names = (await listPolicies({ dirs: [dir] })).map(({ name }) => name);
    expect(names).toEqual(["batch", "ci", "default", "ours", "seatbelt", "untrusted"]);
  });

  it("cannot take the name of one of Corral's own, which a person may rely on", async () => {
    const dir = await folderWith({ "untrusted.yaml": "name: untrusted\n" });
    await expect(loadPolicy("untrusted", { dirs: [dir] })).rejects.toThrow(/untrusted\.yaml:1:1: .*Corral's own/);
  });
});

describe("the ceiling of a limit", () => {
  const row = { key: "gpu", unit: "count", meaning: "whole GPUs" } as const;

  it("that every policy must set is missing if it is not set", () => {
    expect(ceilingOf(row).safeParse(undefined).success).toBe(false);
    expect(ceilingOf(row).parse({ default: 1, max: 2 })).toEqual({ default: 1, max: 2 });
    expect(ceilingOf(row).safeParse({ default: 3, max: 2 }).success).toBe(false);
  });

  it("that a policy need not set is the value of its row, as default and as maximum", () => {
    expect(ceilingOf({ ...row, absent: 0 }).parse(undefined)).toEqual({ default: 0, max: 0 });
  });
});
