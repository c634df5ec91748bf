import { z } from "zod";
import type { SecretSource } from "../../secrets/read-secret.ts";
import { nearest } from "../yaml/issue.ts";
import { map, namedMap } from "../yaml/shape.ts";
import { nameFault, variableNameFault } from "./names.ts";

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
