import { glob, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { corralYaml } from "../../src/declarations/corral-file.ts";
import { FILES_OF, SCHEMA_KINDS, type SchemaKind, schemaModeline } from "../../src/declarations/editor/kinds.ts";
import { editorSchema, FIELD_TEXTS } from "../../src/declarations/editor/schemas.ts";
import { fleetYaml } from "../../src/declarations/fleet-yaml.ts";
import { loadPolicy, parsePolicy } from "../../src/declarations/policy/policy.ts";
import { workerYaml } from "../../src/declarations/worker/worker-yaml.ts";
import { parseYaml } from "../../src/declarations/yaml/document.ts";

const ROOT = join(import.meta.dirname, "../..");

const validators = Object.fromEntries(
  SCHEMA_KINDS.map((kind) => [
    kind,
    new Ajv2020({
      allErrors: true,
      strict: true,
      allowUnionTypes: true,
      strictRequired: false,
      strictTypes: false,
    }).compile(editorSchema(kind)),
  ]),
) as Record<SchemaKind, ValidateFunction>;

const PARENT = await loadPolicy("untrusted", { dirs: [] });

/** Whether the shape of a file is one that the parser accepts. */
function isParsed(kind: SchemaKind, raw: unknown): boolean {
  if (kind !== "policy")
    return { project: corralYaml, worker: workerYaml, fleet: fleetYaml }[kind].safeParse(raw).success;
  try {
    parsePolicy(JSON.stringify(raw), "p.yaml", String((raw as { name: unknown }).name), PARENT);
    return true;
  } catch {
    return false;
  }
}

function faults(kind: SchemaKind, value: unknown): string[] {
  validators[kind](value);
  return (validators[kind].errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

function kindOf(path: string): SchemaKind | null {
  if (path.endsWith(".worker")) return "worker";
  if (basename(path) === "corral.yaml") return "project";
  if (/(^|\/)fleets\/[\w-]+\.yaml$/.test(path)) return "fleet";
  return /(^|\/)policies\/[\w-]+\.yaml$/.test(path) ? "policy" : null;
}

/** The front matter of a worker; the whole of another file. */
function declared(kind: SchemaKind, text: string): unknown {
  return parse(kind === "worker" ? (/^---\n([\s\S]*?)^---/m.exec(text)?.[1] ?? text) : text);
}

type Json = { readonly [key: string]: unknown };

function fields(schema: Json, path = ""): { path: string; schema: Json }[] {
  const join = (key: string): string => (path === "" ? key : `${path}.${key}`);
  const inner = (part: unknown, at: string) =>
    part !== null && typeof part === "object" ? fields(part as Json, at) : [];
  return [
    ...Object.entries((schema.properties as Record<string, Json>) ?? {}).flatMap(([key, part]) => [
      { path: join(key), schema: part },
      ...fields(part, join(key)),
    ]),
    ...inner(schema.additionalProperties, join("*")),
    ...inner(schema.items, `${path}[]`),
    ...((schema.anyOf as Json[]) ?? []).flatMap((form) => inner(form, path)),
  ];
}

describe("the schemas for editors", () => {
  it("accept every file of the examples and of the package", async () => {
    const files = await Array.fromAsync(
      glob(["examples/**/*.{yaml,worker}", "policies/*.yaml", "docs/**/*.{yaml,worker}"], { cwd: ROOT }),
    );
    const seen = new Set<string>();
    for (const file of files) {
      const kind = kindOf(file);
      if (kind === null) continue;
      seen.add(kind);
      expect([file, faults(kind, declared(kind, await readFile(join(ROOT, file), "utf8")))]).toEqual([file, []]);
    }
    expect([...seen].sort()).toEqual(["policy", "project", "worker"]);
  });

  it("accept every file that the pages show", async () => {
    let shown = 0;
    for await (const page of glob(["*.md", "docs/**/*.md", "policies/*.md", "examples/*/*.md"], { cwd: ROOT })) {
      const text = await readFile(join(ROOT, page), "utf8");
      for (const [, block = ""] of text.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)) {
        const named = /^# ((?:[\w-]+\/)*[\w-]+\.(?:yaml|worker))\b/m.exec(block)?.[1];
        const whole = parseAllDocuments(block).map((document) => document.toJS() as unknown);
        const kind = named === undefined ? null : kindOf(named);
        const files =
          kind !== null
            ? [[kind, declared(kind, block)] as const]
            : whole.filter(isProject).map((one) => ["project", one] as const);
        shown += files.length;
        for (const [of, value] of files) expect([page, block, faults(of, value)]).toEqual([page, block, []]);
      }
    }
    expect(shown).toBeGreaterThan(4);
  });

  it("say something about every field, and nothing about one that does not exist", () => {
    for (const kind of SCHEMA_KINDS) {
      const all = fields(editorSchema(kind));
      expect(all.filter(({ schema }) => !schema.description).map(({ path }) => `${kind}: ${path}`)).toEqual([]);
      const known = new Set(all.map(({ path }) => path));
      expect(Object.keys(FIELD_TEXTS[kind]).filter((path) => !known.has(path))).toEqual([]);
    }
  });

  it("name every map's keys, the values of every set in their new spelling, and nothing unknown", () => {
    expect(faults("worker", { comand: ["x"], command: ["x"] })).toEqual([" must NOT have additional properties"]);
    expect(JSON.stringify(editorSchema("project"))).toContain('"enum":["pre_approved","ask","blocked"]');
    expect(JSON.stringify(SCHEMA_KINDS.map(editorSchema))).not.toContain("preApproved");
  });

  it.each<[SchemaKind, unknown]>([
    ["project", { version: 2 }],
    ["project", { version: 1, aproval: {} }],
    ["project", { version: 1, approval: { timeout: 300 } }],
    ["project", { version: 1, approval: { mode: "approveAll" } }],
    ["project", { version: 1, sandbox: { zones: { a: { mode: "rwx" } } } }],
    ["project", { version: 1, sandbox: { network: { allow: "example.org:443" } } }],
    ["project", { version: 1, secrets: { a: { envv: "X" } } }],
    ["worker", { command: "ls -l" }],
    ["worker", { command: ["ls"], model: "a/b" }],
    ["worker", { command: ["ls"], tools: ["exce"] }],
    ["worker", { command: ["ls"], limits: { memory: "1 GB" } }],
    ["worker", { command: ["ls"], limits: { timeout: 60 } }],
    ["worker", { command: ["ls"], env: { A: 1 } }],
    ["fleet", { version: 1, worker: "w" }],
    ["fleet", { version: 1, worker: "w", over: "*", manifest: "m.csv" }],
    ["fleet", { version: 1, worker: "w", over: "*", concurrency: "all" }],
    ["policy", { name: "p", description: "d" }],
    ["policy", { name: "p", description: "d", extends: "default", hardening: { root_user: true } }],
    ["policy", { name: "p", description: "d", extends: "default", network: true }],
  ])("refuse a %s such as %j", (kind, value) => {
    expect(faults(kind, value)).not.toEqual([]);
  });

  it("accept what only the parser can refuse: names, paths, and what depends on more than one key", () => {
    for (const [kind, value] of [
      ["project", { version: 1, sandbox: { zones: { etc: {} } } }],
      ["project", { version: 1, sandbox: { working_dir: "../x" } }],
      ["worker", { command: ["x"], shell_rules: [{ pattern: "a | b", approval: "ask" }] }],
    ] as const) {
      expect(faults(kind, value)).toEqual([]);
      expect(isParsed(kind, value)).toBe(false);
    }
  });
});

function isProject(value: unknown): boolean {
  return value !== null && typeof value === "object" && "version" in value && !("worker" in value || "jobs" in value);
}

/** Values in the shape of a schema, some of them wrong. */
function shaped(schema: Json, depth = 0): fc.Arbitrary<unknown> {
  const odd = fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    1,
    7,
    -1,
    2.5,
    "",
    "x",
    "1m",
    "5s",
    "a.b:443",
    [],
    {},
    "preapproved",
  );
  const own = (): fc.Arbitrary<unknown> => {
    if ("const" in schema) return fc.constant(schema.const);
    if (Array.isArray(schema.enum)) return fc.constantFrom(...(schema.enum as unknown[]));
    if (Array.isArray(schema.anyOf) && schema.properties === undefined)
      return fc.oneof(...(schema.anyOf as Json[]).map((form) => shaped(form, depth)));
    if (schema.type === "array") return fc.array(shaped((schema.items as Json) ?? {}, depth + 1), { maxLength: 2 });
    if (schema.type === "object" && schema.properties !== undefined) {
      const keys = Object.entries(schema.properties as Record<string, Json>);
      const model = Object.fromEntries(keys.map(([key, part]) => [key, shaped(part, depth + 1)]));
      const required = (schema.required as string[] | undefined) ?? [];
      const some = fc.record(model, { requiredKeys: required });
      if (depth > 2) return some;
      // Few at once: a value with all keys is hardly ever right.
      return fc
        .tuple(some, fc.subarray(Object.keys(model), { maxLength: Math.min(3, keys.length) }))
        .map(([all, kept]) =>
          Object.fromEntries(Object.entries(all).filter(([key]) => required.includes(key) || kept.includes(key))),
        );
    }
    if (schema.type === "object")
      return fc.dictionary(
        fc.constantFrom("a", "data", "A"),
        shaped((schema.additionalProperties as Json) ?? {}, depth + 1),
        { maxKeys: 2 },
      );
    if (schema.type === "boolean") return fc.boolean();
    if (schema.type === "integer" || schema.type === "number") return fc.constantFrom(0, 1, 2, 64, 1e9);
    return fc.constantFrom(
      "a",
      "/a",
      "data",
      "1m",
      "10m",
      "ls",
      "a/b",
      "git status",
      "example.org:443",
      "CAP_CHOWN",
      "https://a.b/c",
    );
  };
  return fc.oneof({ weight: 30, arbitrary: fc.constant(null).chain(own) }, { weight: 1, arbitrary: odd });
}

describe("what a schema refuses", () => {
  it.each(SCHEMA_KINDS)("the parser refuses as well: %s", (kind) => {
    let accepted = 0;
    fc.assert(
      fc.property(shaped(editorSchema(kind)), (value) => {
        const text = JSON.stringify(value);
        const document = parseYaml(text, "f.yaml");
        if (!document.ok || !isParsed(kind, document.document.raw)) return;
        accepted += 1;
        const whole = { worker: ["command", "model"], fleet: ["over", "manifest"] }[kind as string] ?? [];
        // That exactly one of these is there is checked by worker.ts and fleet.ts, not by the shape.
        if (whole.length > 0 && whole.filter((key) => key in (value as object)).length !== 1) return;
        if (kind === "policy" && !("extends" in (value as object))) return;
        expect([value, faults(kind, value)]).toEqual([value, []]);
      }),
      { numRuns: 600 },
    );
    expect(accepted).toBeGreaterThan(30);
  });
});

describe("the first line of a file for editors", () => {
  it("names the schema on one line", () => {
    expect(schemaModeline("./a b/project.schema.json")).toBe(
      "# yaml-language-server: $schema=./a%20b/project.schema.json",
    );
    expect(schemaModeline("x\nsandbox: {}")).not.toContain("\n");
    expect(FILES_OF.project).toBe("corral.yaml");
  });
});
