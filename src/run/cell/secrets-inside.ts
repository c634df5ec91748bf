import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { SecretUnavailable } from "../../secrets/read-secret.ts";
import type { CellHost } from "../model/environment.ts";

/** To hide a shorter text wherever it is in an output would hide ordinary words and numbers. */
const MIN_SECRET_CHARS = 8;

export type SecretsInside =
  | { readonly ok: true; readonly values: ReadonlyMap<string, string> }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** Reads the values of a sandbox's secrets, before a cell starts. All that cannot be read are reported together. */
export async function readSecretsInside(
  { secrets = [] }: Pick<Sandbox, "secrets">,
  { secretInside }: Pick<CellHost, "secretInside">,
  signal: AbortSignal,
): Promise<SecretsInside> {
  const values = new Map<string, string>();
  const violations: Violation[] = [];
  for (const secret of secrets) {
    const value = await secretInside(secret, signal).catch((error: unknown) => {
      if (!(error instanceof SecretUnavailable)) throw error;
      return error;
    });
    const reason = typeof value === "string" ? faultOf(value) : value.message;
    if (reason !== null) violations.push({ code: "SECRET_NOT_READ", secret, reason });
    else if (typeof value === "string") values.set(secret, value);
  }
  return violations.length > 0 ? { ok: false, violations } : { ok: true, values };
}

function faultOf(value: string): string | null {
  if (value.length >= MIN_SECRET_CHARS) return null;
  return `it has fewer than ${MIN_SECRET_CHARS} characters, which Corral could not hide in output. Use a longer one`;
}
