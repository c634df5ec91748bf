import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Policy } from "../../sandbox/policy.ts";
import { PACKAGE_ROOT } from "../place/package-root.ts";
import { readDeclarationFile } from "../yaml/declaration-file.ts";
import { nearest } from "../yaml/issue.ts";
import { DeclarationError, type Problem } from "../yaml/problem.ts";
import { parsePolicy } from "./policy-yaml.ts";

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

/** The policy of that name. Throws `UnknownPolicyError`, or `DeclarationError` if its file has problems. */
export async function loadPolicy(name: string, search: PolicySearch): Promise<Policy> {
  const known = await listPolicies(search);
  const found = known.find((candidate) => candidate.name === name);
  if (found === undefined)
    throw new UnknownPolicyError(
      name,
      known.map((candidate) => candidate.name),
    );
  return parsePolicy(await readDeclarationFile(found.file, found.file), found.file, name);
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
