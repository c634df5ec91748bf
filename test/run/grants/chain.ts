import type { Level } from "../../../src/run/grants/judge.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";

export interface LevelSpec extends Partial<Omit<Level, "worker" | "sandbox">> {
  readonly dynamic?: Level["worker"]["dynamic"];
  readonly readonly?: boolean;
}

/** A run in a chain: dynamic, and granted nothing yet, where the test does not say otherwise. */
export function level(name: string, sandbox: Sandbox, spec: LevelSpec = {}): Level {
  const { dynamic = { within: null, max: 8 }, readonly: isReadonly, ...more } = spec;
  const needs = isReadonly === undefined ? {} : { readonly: isReadonly };
  return { worker: { name, dynamic, needs }, sandbox, limited: false, within: null, directories: new Set(), ...more };
}
