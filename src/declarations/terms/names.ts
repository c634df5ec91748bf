import { z } from "zod";
import { isReservedName } from "../../sandbox/virtual-path.ts";
import type { SecretSource } from "../../secrets/read-secret.ts";
import { map, namedMap, nearest } from "../yaml/shape.ts";

const variable = z.string().superRefine((raw, context) => {
  const message = variableNameFault(raw);
  if (message !== null) context.addIssue({ code: "custom", message });
});

/** Corral itself runs it, and not in the project: a relative path could be a worker's file. */
const program = z
  .array(
    z
      .string()
      .max(4096)
      .regex(/^[^\0]*$/, "must not contain a NUL character"),
  )
  .min(1)
  .max(100)
  .refine((words) => /^(\/.+|[\w.+-]+)$/.test(words[0] ?? "") && words[0]?.startsWith("-") === false, {
    path: [0],
    error: "must be an absolute path, or the name of one of the system's programs",
  });

const file = z
  .string()
  .max(4096)
  .regex(/^(~\/|\/)[^\0]*$/, "must be an absolute path, or begin with `~/`");

/** Where a secret is: never in a file that a worker sees, but in Corral's own environment, in a file, or printed by a program. */
export const secretSource = map({
  env: variable.optional(),
  file: file.optional(),
  command: program.optional(),
}).superRefine((raw, context) => {
  if (Object.values(raw).filter((source) => source !== undefined).length !== 1)
    context.addIssue({
      code: "custom",
      message: "needs exactly one of `env`, `file` and `command`: the source of the secret",
    });
});

export type SecretYaml = z.output<typeof secretSource>;

export const MAX_SECRETS = 100;

/** The section `secrets` of `corral.yaml`. */
export const secrets = namedMap(secretSource, nameFault, MAX_SECRETS);

export type SecretsYaml = z.output<typeof secrets>;

/** What is wrong with a name of a secret that is used, or null. `known`: those of `corral.yaml`. */
export function secretNameFault(name: string, known: readonly string[]): string | null {
  if (known.includes(name)) return null;
  const advice =
    known.length === 0 ? "; declare it under `secrets` of corral.yaml" : `; there are: ${known.join(", ")}`;
  return `there is no secret \`${name}\`${nearest(name, known) ?? advice}`;
}

/** Null if nothing is declared. */
export function sourceOf({ env, file, command }: Partial<SecretYaml>): SecretSource | null {
  if (env !== undefined) return { kind: "env", name: env };
  if (file !== undefined) return { kind: "file", path: file };
  const [program, ...args] = command ?? [];
  return program === undefined ? null : { kind: "command", program, args };
}

/** A name that a file uses; `fault`: what is wrong with it, or null. */
export const named = (fault: (name: string) => string | null) =>
  z.string().superRefine((name, context) => {
    const message = fault(name);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

const NAME = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/;

/** What is wrong with a name of a worker, or null. */
export function nameFault(name: string): string | null {
  return NAME.test(name) ? null : "must be 1 to 64 letters, digits, `.`, `_` or `-`, and not begin with a dot";
}

/** What is wrong with a name of a mount, which becomes a directory at the top of the cell, or null. */
export function mountNameFault(name: string): string | null {
  return nameFault(name) ?? (isReservedName(name) ? "is reserved: it would hide a system directory of the cell" : null);
}

/** What is wrong with a name of an environment variable, or null. */
export function variableNameFault(name: string): string | null {
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(name))
    return "must be letters, digits and `_`, and not begin with a digit";
  return name.startsWith("CORRAL_") ? "is reserved: names that begin with CORRAL_ are Corral's own" : null;
}

/** What is wrong with the name of a repository, which becomes that of a folder of Corral's own, or null. */
export function repositoryNameFault(name: string): string | null {
  return /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(name)
    ? null
    : "must be 1 to 64 letters, digits, `_` or `-`, and begin with a letter or digit";
}
