import type { Needs } from "./needs.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Violation } from "./violation.ts";

export type Derivation =
  | { readonly ok: true; readonly sandbox: Sandbox }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** The child's sandbox: what `needs` asks of `parent`, or every reason why not. Pure. */
export declare function derive(parent: Sandbox, needs: Needs, child: string): Derivation;
