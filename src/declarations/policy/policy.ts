import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { everyLimit, LIMITS, type LimitRow } from "../../sandbox/limits.ts";
import type { Network } from "../../sandbox/network/rule.ts";
import {
  BASELINE,
  HARDENING,
  HARDENING_LINES,
  type Hardening,
  type HardeningLine,
  hardeningRow,
  type Policy,
} from "../../sandbox/policy.ts";
import { present } from "../../text/present.ts";
import { PACKAGE_ROOT } from "../place/package-root.ts";
import { amountOf, limitKeys, policyRules } from "../terms/terms.ts";
import { checkShape, parseYaml, readDeclarationFile, type YamlDocument } from "../yaml/document.ts";
import { DeclarationError, type Problem } from "../yaml/problem.ts";
import { byKind, byLook, type JsonLook, kindOf, later, map, nearest, size } from "../yaml/shape.ts";

interface PolicyFile {
  readonly name: string;
  readonly file: string;
}

interface PolicySearch {
  /** Folders searched in this order, after the package's own `policies/`, whose names are reserved. */
  readonly dirs: readonly string[];
}

/** A name that no `policies/NAME.yaml` answers to. */
export class UnknownPolicyError extends Error {
  override readonly name = "UnknownPolicyError";
  readonly asked: string;
  readonly known: readonly string[];

  constructor(asked: string, known: readonly string[]) {
    super(`There is no policy \`${asked}\`${nearest(asked, known) ?? "."} Known policies: ${known.join(", ")}.`);
    this.asked = asked;
    this.known = known;
  }
}

/**
 * The policy of that name, with what it inherits. Throws `UnknownPolicyError`, or `DeclarationError` if its file, or one that
 * it extends, has problems.
 */
export async function loadPolicy(name: string, search: PolicySearch): Promise<Policy> {
  const known = await listPolicies(search);
  const names = known.map((candidate) => candidate.name);
  if (!names.includes(name)) throw new UnknownPolicyError(name, names);
  return await loadFrom(known, [name]);
}

/** The most policies from the one that is asked for to the last that is extended. */
const MAX_CHAIN = 8;

/** `chain`: from the policy that was asked for to the one to load. */
async function loadFrom(known: readonly PolicyFile[], chain: readonly string[]): Promise<Policy> {
  const name = chain.at(-1) ?? "";
  const file = known.find((candidate) => candidate.name === name)?.file ?? "";
  const document = policyDocument(await readDeclarationFile(file, file), file);
  const parent = extendedBy(document);
  if (parent === null) return policyOf(document, name, null);
  const names = known.map((candidate) => candidate.name);
  const fault = chain.includes(parent)
    ? `goes in a circle: ${[...chain, parent].join(" > ")}`
    : !names.includes(parent)
      ? `there is no policy of this name${nearest(parent, names) ?? `; there are: ${names.join(", ")}`}`
      : chain.length >= MAX_CHAIN
        ? `would be the policy number ${MAX_CHAIN + 1} in a chain of at most ${MAX_CHAIN}`
        : null;
  if (fault !== null) throw new DeclarationError([document.problemAt(["extends"], fault)]);
  return policyOf(document, name, await loadFrom(known, [...chain, parent]));
}

/** Every policy that can be named, sorted. Throws `DeclarationError` for a file with the name of one of Corral's own. */
export async function listPolicies({ dirs }: PolicySearch): Promise<readonly PolicyFile[]> {
  const own = await policiesIn(PACKAGE_POLICIES);
  const files = new Map(own);
  const problems: Problem[] = [];
  for (const dir of dirs) {
    for (const [name, file] of await policiesIn(dir)) {
      if (own.has(name)) problems.push(takenName(name, file));
      else if (!files.has(name)) files.set(name, file);
    }
  }
  if (problems.length > 0) throw new DeclarationError(problems);
  return [...files].map(([name, file]) => ({ name, file })).toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

async function policiesIn(dir: string): Promise<ReadonlyMap<string, string>> {
  const named = (await readdir(dir)).flatMap((entry): [string, string][] => {
    const name = /^([a-z0-9][a-z0-9-]{0,63})\.yaml$/.exec(entry)?.[1];
    return name === undefined ? [] : [[name, join(dir, entry)]];
  });
  return new Map(named);
}

/** `--policy untrusted` always means Corral's own, even in a stranger's project. */
function takenName(name: string, file: string): Problem {
  return {
    file,
    line: 1,
    column: 1,
    path: "name",
    message: `\`${name}\` is one of Corral's own policies; choose another name`,
  };
}

const PACKAGE_POLICIES = join(PACKAGE_ROOT, "policies");

/**
 * The `corral` seccomp profile as the Engine takes it (`seccomp=JSON`), without the comments that are for people.
 *
 * The Engine reads nothing from this host's disk for an API caller, so the text travels in every plan.
 */
export async function loadSeccompProfile(): Promise<string> {
  const text = await readFile(join(PACKAGE_ROOT, "policies/seccomp.json"), "utf8");
  return JSON.stringify(JSON.parse(text, (key, value) => (key === "comment" ? undefined : value)));
}

/** Parses one policy file. Throws a `DeclarationError` with every problem in it. `parent`: the policy that it extends. */
export function parsePolicy(text: string, file: string, name: string, parent: Policy | null = null): Policy {
  return policyOf(policyDocument(text, file), name, parent);
}

/** Throws a `DeclarationError` if the text is not YAML. */
function policyDocument(text: string, file: string): YamlDocument {
  const parsed = parseYaml(text, file);
  if (!parsed.ok) throw new DeclarationError(parsed.problems);
  return parsed.document;
}

/** The policy that this one extends, as written; null: none, or what is there is no text, which `policyOf` reports. */
function extendedBy({ raw }: YamlDocument): string | null {
  const written = kindOf(raw) === "map" ? (raw as Record<string, unknown>).extends : undefined;
  return typeof written === "string" ? written : null;
}

/** What the file does not mention is the parent's, or the baseline. Throws a `DeclarationError`. */
function policyOf(document: YamlDocument, name: string, parent: Policy | null): Policy {
  const checked = checkShape(document, policyFile(z.literal(name), parent));
  if (!checked.ok) throw new DeclarationError(checked.problems);
  const { hardening, limits, tmp, home, extends: extended, ...rest } = checked.value;
  const limit = (side: "default" | "max") => everyLimit((limitName) => limits[LIMITS[limitName].key][side]);
  return {
    ...rest,
    ...(extended === undefined ? {} : { inherits: [extended, ...(parent?.inherits ?? [])] }),
    hardening: hardeningOf(hardening),
    maxLimits: limit("max"),
    defaultLimits: limit("default"),
    tmpBytes: tmp,
    homeBytes: home,
  };
}

/** The shape of a policy file for editors, in which everything that can be inherited is optional. */
export function policyYaml() {
  return policyFile(z.string(), "any");
}

/** `any`: some parent, which is not known. */
type Parent = Policy | "any" | null;

const policyNetwork = byKind(
  { switch: z.boolean(), map: later(() => policyRules) },
  "must be `true`, `false` or `{ allow: [host:port] }`",
);

const policyName = z.string().regex(/^[a-z0-9][a-z0-9-]{0,63}$/, "must be the name of a policy");

function policyFile(name: z.ZodType<string>, parent: Parent) {
  return map({
    name,
    description: z.string().min(1).max(500),
    extends: policyName.optional(),
    network: line<Network>(policyNetwork, {
      baseline: false,
      inherited: inheritedFrom(parent, ({ network }) => network),
      isStrict: (written) => typeof written === "object" && written.allow.length === 0,
      look: {
        anyOf: [
          { const: false },
          { type: "object", properties: { allow: { type: "array", maxItems: 0 } }, required: ["allow"] },
        ],
      },
    }),
    hardening: orParents(
      map(Object.fromEntries(HARDENING_LINES.map((each) => [HARDENING[each].key, lineOf(each, parent)]))),
      parent,
    ).refine(({ seccomp, file_watches }) => seccomp === "corral" || file_watches === true, {
      path: [HARDENING.fileWatches.key],
      error:
        'cannot be `false` with `seccomp: engine`, which lets every program watch files; write `file_watches: { value: true, why: "…" }`',
    }),
    limits: orParents(
      map(
        limitKeys((row, limit) =>
          ceilingOf(
            row,
            inheritedFrom(parent, ({ defaultLimits, maxLimits }) => {
              return { default: defaultLimits[limit], max: maxLimits[limit] };
            }),
          ),
        ),
      ),
      parent,
    ),
    reuse: line(z.enum(["fresh", "scrubbed"]), {
      baseline: "fresh" as const,
      inherited: inheritedFrom(parent, ({ reuse }) => reuse),
    }),
    tmp: inheriting(
      size,
      inheritedFrom(parent, ({ tmpBytes }) => tmpBytes),
    ),
    home: inheriting(
      size,
      inheritedFrom(parent, ({ homeBytes }) => homeBytes),
    ),
    nofile: inheriting(
      z.int().min(1).max(1_048_576),
      inheritedFrom(parent, ({ nofile }) => nofile),
    ),
  });
}

/** What a file has that does not mention a key; `some`: a value that is not known; null: the key is required. */
type Inherited<Value> = { readonly value: Value } | "some" | null;

function inheritedFrom<Value>(parent: Parent, value: (policy: Policy) => Value): Inherited<Value> {
  return parent === null ? null : parent === "any" ? "some" : { value: value(parent) };
}

function inheriting<Value>(schema: z.ZodType<Value>, inherited: Inherited<Value>): z.ZodType<Value> {
  if (inherited === null) return schema;
  if (inherited === "some") return schema.optional() as z.ZodType<unknown> as z.ZodType<Value>;
  // The parent's value was checked in its own file, where it may have needed a reason.
  return schema.default(inherited.value as never) as unknown as z.ZodType<Value>;
}

/** A map that a file with a parent may leave out: then each of its lines is inherited. */
function orParents<Shape extends z.core.$ZodLooseShape>(keys: z.ZodObject<Shape, z.core.$strict>, parent: Parent) {
  return parent === null ? keys : (keys.prefault({} as never) as unknown as typeof keys);
}

const CAPABILITY = z.string().regex(/^CAP_[A-Z_]{2,32}$/, "must be a capability such as CAP_CHOWN");
const CAPABILITIES = z
  .array(CAPABILITY)
  .max(41)
  .transform((kept) => [...new Set(kept)].toSorted());
const RUNTIME = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be the name of an Engine runtime");
const RUNTIMES = byKind(
  {
    text: RUNTIME,
    list: z
      .array(RUNTIME)
      .min(1)
      .max(8)
      .refine((names) => !names.slice(0, -1).includes("default"), "`default` must be the last: every Engine has one"),
  },
  "must be the name of an Engine runtime, or a list of names",
);

function lineOf(name: HardeningLine, parent: Parent): z.ZodType {
  const row = hardeningRow(name);
  const baseline = BASELINE[name];
  const inherited = inheritedFrom(parent, ({ hardening }) => hardening[name]);
  switch (row.kind) {
    case "switch":
      return line<unknown>(z.boolean(), { baseline, inherited });
    case "capabilities":
      return line<readonly string[]>(CAPABILITIES, {
        baseline: [],
        inherited: inherited as Inherited<readonly string[]>,
        isStrict: (kept) => kept.length === 0,
        look: { type: "array", maxItems: 0 },
      });
    case "level":
      return line<unknown>(z.enum(row.levels.toReversed()), { baseline, inherited });
    case "runtime":
      return inheriting<unknown>(RUNTIMES.optional(), inherited);
    case "driver":
      return line<unknown>(z.enum(row.choices).optional(), {
        baseline: "auto",
        inherited: inherited ?? { value: undefined },
        isStrict: (written) => written !== "seatbelt",
        look: { enum: row.choices.filter((choice) => choice !== "seatbelt") },
      });
  }
}

/** By the names of the lines, in their order. */
function hardeningOf(written: Readonly<Record<string, unknown>>): Hardening {
  return present(
    Object.fromEntries(HARDENING_LINES.map((name) => [name, written[HARDENING[name].key]])),
  ) as unknown as Hardening;
}

/** The default of a limit, and the most that a run may ask for. */
export function ceilingOf(
  row: LimitRow,
  inherited: Inherited<{ readonly default: number; readonly max: number }> = null,
) {
  const amount = amountOf(row);
  const side = (key: "default" | "max") =>
    inheriting(amount, inherited === null || inherited === "some" ? inherited : { value: inherited.value[key] });
  const pair = map({ default: side("default"), max: side("max") }).refine((written) => written.default <= written.max, {
    path: ["default"],
    error: "must not be larger than `max`",
  });
  if (inherited !== null) return pair.prefault({} as never);
  const { absent } = row;
  return absent === undefined ? pair : pair.prefault({ default: absent, max: absent });
}

interface Line<Value> {
  readonly baseline: Value;
  readonly inherited: Inherited<Value>;
  readonly isStrict?: (written: Value) => boolean;
  /** A value that is as strict as the baseline, as JSON Schema. */
  readonly look?: JsonLook;
}

/**
 * One line that hardens a cell. Written bare it must be as strict as the baseline; looser, it is
 * `{ value: …, why: "…" }`, so that no file weakens a cell without telling its reader the reason. A line that is not written
 * is the parent's, which has given its reason, or else the baseline.
 */
function line<Value>(value: z.ZodType<Value>, { baseline, inherited, isStrict, look }: Line<Value>): z.ZodType<Value> {
  const bare = value.refine((written) => written === baseline || isStrict?.(written), {
    error: `is looser than the baseline (${JSON.stringify(baseline)}); write it as \`{ value: …, why: "…" }\``,
  });
  const reasoned = map({ value, why: z.string().trim().min(8, "must give the reason in a few words") });
  const reasonedValue = reasoned.transform((written): Value => written.value as Value);
  const written = byLook(
    (raw) => (isReasoned(raw) ? reasonedValue : bare),
    "",
    (of) => ({ anyOf: [look ?? { const: baseline }, of(reasoned)] }),
  );
  return inheriting<Value>(written as unknown as z.ZodType<Value>, inherited ?? { value: baseline });
}

function isReasoned(raw: unknown): boolean {
  return kindOf(raw) === "map" && ("value" in (raw as object) || "why" in (raw as object));
}
