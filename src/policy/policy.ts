import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Policy } from "../sandbox/policy.ts";
import { nearest } from "../yaml/issue.ts";
import { parsePolicy } from "./policy-yaml.ts";

export interface PolicyFile {
  readonly name: string;
  readonly file: string;
}

export interface PolicySearch {
  /** Folders searched in this order, before the package's own `policies/`: a project may have its own `default`. */
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

/** The policy of that name. Throws `UnknownPolicyError`, or `DeclarationError` where its file is wrong. */
export async function loadPolicy(name: string, search: PolicySearch): Promise<Policy> {
  const known = await listPolicies(search);
  const found = known.find((candidate) => candidate.name === name);
  if (found === undefined)
    throw new UnknownPolicyError(
      name,
      known.map((candidate) => candidate.name),
    );
  return parsePolicy(await readFile(found.file, "utf8"), found.file, name);
}

/** Every policy that can be named, sorted, each with the file that wins. */
export async function listPolicies({ dirs }: PolicySearch): Promise<readonly PolicyFile[]> {
  const files = new Map<string, string>();
  for (const dir of [...dirs, PACKAGE_POLICIES]) {
    for (const entry of await readdir(dir)) {
      const name = /^([a-z0-9][a-z0-9-]{0,63})\.yaml$/.exec(entry)?.[1];
      if (name !== undefined && !files.has(name)) files.set(name, join(dir, entry));
    }
  }
  return [...files].map(([name, file]) => ({ name, file })).toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** `src/policy/` and `dist/policy/` are both two levels below the package. */
const PACKAGE_POLICIES = fileURLToPath(new URL("../../policies", import.meta.url));
