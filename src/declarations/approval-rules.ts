import { z } from "zod";
import { APPROVAL_OPERATIONS } from "../sandbox/approval.ts";
import { parseTarget } from "../sandbox/network/rule.ts";
import { parseVirtualPath } from "../sandbox/virtual-path.ts";
import { present } from "../text/present.ts";
import { pattern } from "./worker/worker-yaml.ts";
import { byKind, map } from "./yaml/shape.ts";

const MAX_RULES = 200;
const MAX_PATHS = 50;
const MAX_HOSTS = 50;
/** Each further wildcard multiplies the time that a hostile name can cost. */
const MAX_WILDCARDS_PER_NAME = 3;
const MAX_GLOBSTARS = 3;

const operation = z.enum(APPROVAL_OPERATIONS);

const operations = byKind(
  { text: operation.transform((only) => [only]), list: z.array(operation).min(1).max(APPROVAL_OPERATIONS.length) },
  "must be an operation, or a list of them",
);

const worker = z.string().regex(/^[A-Za-z0-9._*?-]{1,64}$/, "must be a worker's name; `*` matches any part of it");

const pathGlob = z
  .string()
  .max(1000)
  .superRefine((raw, context) => {
    const message = globFault(raw);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

const hosts = z.string().superRefine((raw, context) => {
  const parsed = parseTarget(raw);
  if (!parsed.ok) context.addIssue({ code: "custom", message: parsed.reason });
});

const rule = map({
  worker: worker.optional(),
  operation: operations.optional(),
  paths: z.array(pathGlob).min(1).max(MAX_PATHS).optional(),
  hosts: z.array(hosts).min(1).max(MAX_HOSTS).optional(),
  command: pattern.optional(),
  decide: z.enum(["approve", "deny"]),
  why: z.string().min(1).max(500).optional(),
})
  .superRefine((raw, context) => {
    const fault = ruleFault(raw);
    if (fault !== null) context.issues.push({ code: "custom", input: raw, path: [fault.key], message: fault.message });
  })
  .transform(({ operation: named, ...rest }) => present({ ...rest, operations: named }));

/**
 * `approval.rules`: what the project decides beforehand. What the rules mean is `approval/rules.ts`; here what could
 * never match, or would approve more than it says, is refused.
 */
export const approvalRules = z.array(rule).max(MAX_RULES);

export type ApprovalRuleYaml = z.output<typeof rule>;

interface RawRule {
  readonly operation?: readonly z.output<typeof operation>[] | undefined;
  readonly paths?: readonly string[] | undefined;
  readonly hosts?: readonly string[] | undefined;
  readonly command?: string | undefined;
  readonly decide: "approve" | "deny";
}

/** Why a rule as a whole is none, or null. */
function ruleFault(raw: RawRule): { readonly key: string; readonly message: string } | null {
  const { operation: named, paths, hosts, command, decide } = raw;
  if (hosts !== undefined && (paths !== undefined || command !== undefined))
    return { key: "hosts", message: "`hosts` cannot be used together with `paths` or `command`; write two rules" };
  if (hosts !== undefined && named?.some((one) => one !== "grant_network"))
    return { key: "hosts", message: "`hosts` is only for the operation `grant_network`" };
  if (command !== undefined && paths !== undefined)
    return { key: "command", message: "`command` and `paths` cannot be used together; write two rules" };
  if (command !== undefined && named?.some((one) => one !== "exec"))
    return { key: "command", message: "`command` is only for the operation `exec`" };
  if (paths !== undefined && named?.every((one) => one === "exec"))
    return { key: "paths", message: "`paths` is not for the operation `exec`; use `command`" };
  if (paths !== undefined && named?.includes("grant_network"))
    return {
      key: "paths",
      message: "`paths` is not for the operation `grant_network`; use `hosts` in a rule of its own",
    };
  if (decide === "deny" || paths !== undefined || hosts !== undefined || command !== undefined) return null;
  if (named === undefined)
    return { key: "decide", message: "a rule that approves must name `operation`, `paths`, `hosts` or `command`" };
  const wide = named.find((one) => one === "push" || one.startsWith("grant_"));
  const key = wide === "grant_network" ? "hosts" : "paths";
  return wide === undefined
    ? null
    : { key: "decide", message: `a rule that approves \`${wide}\` must name \`${key}\`` };
}

/** Why no path could ever match, or null. */
function globFault(raw: string): string | null {
  if (!raw.startsWith("/")) return "must be an absolute path, such as `/drafts/**`";
  const parsed = parseVirtualPath(raw);
  if (!parsed.ok) return parsed.reason;
  if (parsed.path !== raw) return `must be written as \`${parsed.path}\``;
  const names = raw.slice(1).split("/");
  if (names.some((name) => name.includes("**") && name !== "**"))
    return "`**` matches whole directories, so it must be alone between slashes";
  if (names.filter((name) => name === "**").length > MAX_GLOBSTARS)
    return `may contain \`**\` at most ${MAX_GLOBSTARS} times`;
  if (names.some((name) => name !== "**" && name.split("*").length - 1 > MAX_WILDCARDS_PER_NAME))
    return `may contain \`*\` at most ${MAX_WILDCARDS_PER_NAME} times between two slashes`;
  return null;
}
