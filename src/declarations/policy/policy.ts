import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Policy } from "../../sandbox/policy.ts";
import { PACKAGE_ROOT } from "../place/package-root.ts";
import { readDeclarationFile } from "../yaml/document.ts";
import { DeclarationError, type Problem } from "../yaml/problem.ts";
import { nearest } from "../yaml/shape.ts";
import { extendedBy, policyDocument, policyOf } from "./policy-yaml.ts";

export interface PolicyFile {
  readonly name: string;
  readonly file: string;
}

export interface PolicySearch {
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
