import { type Narrowing, whoTook } from "./ancestry.ts";
import type { Policy } from "./policy.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Violation } from "./violation.ts";

/** Secrets that a worker has inside of its cell, by name. Absent from a sandbox: none. */
export interface DerivedSecrets {
  readonly given: Pick<Sandbox, "secrets">;
  readonly violations: readonly Violation[];
}

/** Of the asked names, those that the caller has and `policy`, the worker's own, allows; any other is a violation. */
export function deriveSecrets(parent: Sandbox, asked: readonly string[], policy: Policy): DerivedSecrets {
  const has = parent.secrets ?? [];
  const valid = allowsSecrets(policy) ? has : [];
  const byPolicy = `policy ${policy.name}`;
  const violations = asked
    .filter((name) => !valid.includes(name))
    .map((name): Violation => {
      const by = has.includes(name) ? byPolicy : whoTookSecret(parent, name);
      return { code: "SECRET_NOT_AVAILABLE", asked: name, by, valid };
    });
  return { given: asSecrets(asked.filter((name) => valid.includes(name))), violations };
}

/** What a project gives, as far as its policy allows it. */
export function projectSecrets(
  declared: readonly string[],
  policy: Policy,
): { readonly given: Pick<Sandbox, "secrets">; readonly narrowings: readonly Narrowing[] } {
  if (declared.length === 0 || allowsSecrets(policy)) return { given: asSecrets(declared), narrowings: [] };
  return { given: {}, narrowings: [{ by: `policy ${policy.name}`, kind: "secrets", from: [...declared], to: [] }] };
}

function allowsSecrets({ hardening }: Policy): boolean {
  return hardening.secrets === "allowed";
}

/** In one order, so that the same secrets give the same plan. */
function asSecrets(names: readonly string[]): Pick<Sandbox, "secrets"> {
  return names.length === 0 ? {} : { secrets: [...new Set(names)].sort() };
}

function whoTookSecret(sandbox: Sandbox, name: string): string {
  return whoTook(sandbox, (n) => n.kind === "secrets" && n.from.includes(name) && !n.to.includes(name));
}
