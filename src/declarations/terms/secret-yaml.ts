import { z } from "zod";
import type { SecretSource } from "../../secrets/read-secret.ts";
import { map } from "../yaml/shape.ts";
import { variableNameFault } from "./names.ts";

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

/** Where a secret is: never in a file of the project, but in Corral's own environment, or printed by a program. */
export const secretSource = map({ env: variable.optional(), command: program.optional() }).superRefine(
  ({ env, command }, context) => {
    if ((env === undefined) === (command === undefined))
      context.addIssue({
        code: "custom",
        message: "needs exactly one of `env` and `command`: the source of the secret",
      });
  },
);

export type SecretYaml = z.output<typeof secretSource>;

/** Null if nothing is declared. */
export function sourceOf({ env, command }: Partial<SecretYaml>): SecretSource | null {
  if (env !== undefined) return { kind: "env", name: env };
  const [program, ...args] = command ?? [];
  return program === undefined ? null : { kind: "command", program, args };
}
