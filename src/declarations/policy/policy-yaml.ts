import { z } from "zod";
import { parseNetworkEntry } from "../../sandbox/network.ts";
import type { Hardening, Policy } from "../../sandbox/policy.ts";
import { checkShape } from "../yaml/check.ts";
import { parseYaml } from "../yaml/document.ts";
import { DeclarationError } from "../yaml/problem.ts";
import { byKind, byLook, kindOf, map } from "../yaml/shape.ts";
import { duration, size } from "../yaml/units.ts";

/**
 * The strictest value of every line: what a policy file has if it leaves the line out. A named runtime is
 * stricter still.
 */
export const BASELINE: Hardening = {
  rootUser: false,
  readOnlyRoot: true,
  noNewPrivileges: true,
  capabilities: [],
  seccomp: "corral",
  tmpExec: false,
};

/** Parses one policy file. Throws a `DeclarationError` with every problem in it. */
export function parsePolicy(text: string, file: string, name: string): Policy {
  const parsed = parseYaml(text, file);
  if (!parsed.ok) throw new DeclarationError(parsed.problems);
  const checked = checkShape(parsed.document, policyFile(name));
  if (!checked.ok) throw new DeclarationError(checked.problems);
  const { description, network, hardening, limits, reuse, tmp, home, nofile } = checked.value;
  const limit = (side: "default" | "max") => ({
    timeoutMs: limits.timeout[side],
    memoryBytes: limits.memory[side],
    cpus: limits.cpus[side],
    pids: limits.pids[side],
    outputBytes: limits.output[side],
    diskBytes: limits.disk[side],
  });
  return {
    name,
    description,
    hardening: {
      rootUser: hardening.root_user,
      readOnlyRoot: hardening.read_only_root,
      noNewPrivileges: hardening.no_new_privileges,
      capabilities: [...new Set(hardening.capabilities)].toSorted(),
      seccomp: hardening.seccomp,
      tmpExec: hardening.tmp_exec,
      ...(hardening.runtime === undefined ? {} : { runtime: hardening.runtime }),
    },
    network,
    maxLimits: limit("max"),
    defaultLimits: limit("default"),
    reuse,
    tmpBytes: tmp,
    homeBytes: home,
    nofile,
  };
}

function policyFile(name: string) {
  const count = z.int().min(1);
  return map({
    name: z.literal(name),
    description: z.string().min(1).max(500),
    network: line(NETWORK, false, (written) => typeof written === "object" && written.allow.length === 0),
    hardening: map({
      root_user: line(z.boolean(), BASELINE.rootUser),
      read_only_root: line(z.boolean(), BASELINE.readOnlyRoot),
      no_new_privileges: line(z.boolean(), BASELINE.noNewPrivileges),
      capabilities: line(z.array(CAPABILITY).max(41), [], (kept) => kept.length === 0),
      seccomp: line(z.enum(["corral", "engine"]), BASELINE.seccomp),
      tmp_exec: line(z.boolean(), BASELINE.tmpExec),
      runtime: z
        .string()
        .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be the name of an Engine runtime")
        .optional(),
    }),
    limits: map({
      timeout: ceiling(duration),
      memory: ceiling(size),
      cpus: ceiling(z.number().min(0.01).max(1024)),
      pids: ceiling(count.max(4_194_304)),
      output: ceiling(size),
      disk: ceiling(size),
    }),
    reuse: line(z.enum(["fresh", "scrubbed"]), "fresh"),
    tmp: size,
    home: size,
    nofile: count.max(1_048_576),
  });
}

const CAPABILITY = z.string().regex(/^CAP_[A-Z_]{2,32}$/, "must be a capability such as CAP_CHOWN");

const NETWORK_ENTRY = z.string().superRefine((raw, context) => {
  const parsed = parseNetworkEntry(raw);
  if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.reason });
});

const NETWORK = byKind(
  { switch: z.boolean(), map: map({ allow: z.array(NETWORK_ENTRY).max(100) }) },
  "must be `true`, `false` or `{ allow: [host:port] }`",
);

/** What a run gets where nobody says, and the most that it may ask for. */
function ceiling(amount: z.ZodType<number>) {
  return map({ default: amount, max: amount }).refine((pair) => pair.default <= pair.max, {
    path: ["default"],
    error: "must not be larger than `max`",
  });
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
  const reasoned = map({ value, why: z.string().trim().min(8, "must say the reason in a few words") });
  const reasonedValue = reasoned.transform((written): Value => written.value as Value);
  return byLook((raw) => (isReasoned(raw) ? reasonedValue : bare), "").prefault(baseline);
}

function isReasoned(raw: unknown): boolean {
  return kindOf(raw) === "map" && ("value" in (raw as object) || "why" in (raw as object));
}
