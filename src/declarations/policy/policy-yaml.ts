import { z } from "zod";
import { everyLimit, LIMITS, type LimitRow } from "../../sandbox/limits.ts";
import type { Network } from "../../sandbox/network/rule.ts";
import {
  BASELINE,
  HARDENING,
  HARDENING_LINES,
  type Hardening,
  type HardeningLine,
  hardeningRow,
  type Policy,
} from "../../sandbox/policy.ts";
import { policyNetwork } from "../terms/network.ts";
import { present } from "../terms/present.ts";
import { amountOf, limitKeys } from "../terms/terms.ts";
import { checkShape } from "../yaml/check.ts";
import { parseYaml } from "../yaml/document.ts";
import { DeclarationError } from "../yaml/problem.ts";
import { byLook, kindOf, map } from "../yaml/shape.ts";
import { size } from "../yaml/units.ts";

/** Parses one policy file. Throws a `DeclarationError` with every problem in it. */
export function parsePolicy(text: string, file: string, name: string): Policy {
  const parsed = parseYaml(text, file);
  if (!parsed.ok) throw new DeclarationError(parsed.problems);
  const checked = checkShape(parsed.document, policyFile(name));
  if (!checked.ok) throw new DeclarationError(checked.problems);
  const { hardening, limits, tmp, home, ...rest } = checked.value;
  const limit = (side: "default" | "max") => everyLimit((limitName) => limits[LIMITS[limitName].key][side]);
  return {
    ...rest,
    hardening: hardeningOf(hardening),
    maxLimits: limit("max"),
    defaultLimits: limit("default"),
    tmpBytes: tmp,
    homeBytes: home,
  };
}

function policyFile(name: string) {
  return map({
    name: z.literal(name),
    description: z.string().min(1).max(500),
    network: line<Network>(
      policyNetwork,
      false,
      (written) => typeof written === "object" && written.allow.length === 0,
    ),
    hardening: map(Object.fromEntries(HARDENING_LINES.map((each) => [HARDENING[each].key, lineOf(each)]))).refine(
      ({ seccomp, file_watches }) => seccomp === "corral" || file_watches === true,
      {
        path: [HARDENING.fileWatches.key],
        error:
          'cannot be `false` with `seccomp: engine`, which lets every program watch files; write `file_watches: { value: true, why: "…" }`',
      },
    ),
    limits: map(limitKeys(ceilingOf)),
    reuse: line(z.enum(["fresh", "scrubbed"]), "fresh"),
    tmp: size,
    home: size,
    nofile: z.int().min(1).max(1_048_576),
  });
}

const CAPABILITY = z.string().regex(/^CAP_[A-Z_]{2,32}$/, "must be a capability such as CAP_CHOWN");
const RUNTIME = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be the name of an Engine runtime");

function lineOf(name: HardeningLine): z.ZodType {
  const row = hardeningRow(name);
  const baseline = BASELINE[name];
  switch (row.kind) {
    case "switch":
      return line(z.boolean(), baseline);
    case "capabilities":
      return line(z.array(CAPABILITY).max(41), [], (kept) => kept.length === 0).transform((kept) =>
        [...new Set(kept)].toSorted(),
      );
    case "level":
      return line(z.enum(row.levels.toReversed()), baseline);
    case "runtime":
      return RUNTIME.optional();
  }
}

/** By the names of the lines, in their order. */
function hardeningOf(written: Readonly<Record<string, unknown>>): Hardening {
  return present(
    Object.fromEntries(HARDENING_LINES.map((name) => [name, written[HARDENING[name].key]])),
  ) as unknown as Hardening;
}

/** The default of a limit, and the most that a run may ask for. */
export function ceilingOf(row: LimitRow) {
  const amount = amountOf(row);
  const pair = map({ default: amount, max: amount }).refine((written) => written.default <= written.max, {
    path: ["default"],
    error: "must not be larger than `max`",
  });
  const { absent } = row;
  return absent === undefined ? pair : pair.prefault({ default: absent, max: absent });
}

/**
 * One line that hardens a cell. Written bare it must be as strict as the baseline; looser, it is
 * `{ value: …, why: "…" }`, so that no file weakens a cell without telling its reader the reason.
 */
function line<Value>(
  value: z.ZodType<Value>,
  baseline: Value,
  isStrict = (written: Value): boolean => written === baseline,
): z.ZodType<Value> {
  const bare = value.refine((written) => written === baseline || isStrict(written), {
    error: `is looser than the baseline (${JSON.stringify(baseline)}); write it as \`{ value: …, why: "…" }\``,
  });
  const reasoned = map({ value, why: z.string().trim().min(8, "must give the reason in a few words") });
  const reasonedValue = reasoned.transform((written): Value => written.value as Value);
  return byLook((raw) => (isReasoned(raw) ? reasonedValue : bare), "").prefault(baseline);
}

function isReasoned(raw: unknown): boolean {
  return kindOf(raw) === "map" && ("value" in (raw as object) || "why" in (raw as object));
}
