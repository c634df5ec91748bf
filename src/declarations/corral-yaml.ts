import { z } from "zod";
import { APPROVAL_MODE_NAMES, INBOX_MODE_NAMES } from "../sandbox/approval.ts";
import { approvalRules } from "./approval-rules.ts";
import { fleetManner } from "./fleet-yaml.ts";
import { git } from "./git/git-yaml.ts";
import { models } from "./models/models-yaml.ts";
import { nameFault } from "./terms/names.ts";
import { sandboxYaml } from "./terms/sandbox-yaml.ts";
import { secrets } from "./terms/secret-yaml.ts";
import { hostPath } from "./terms/terms.ts";
import { byKind, map } from "./yaml/shape.ts";
import { duration } from "./yaml/units.ts";

/** `history` of `corral.yaml`: what is kept of the runs of this project; null: nothing. */
const history = byKind(
  {
    text: z.literal("off", { error: "must be `off`, or a map with `days` and `runs`" }).transform(() => null),
    map: map({
      /** Records that are older are removed. */
      days: z.int().min(1).max(3650).default(30),
      /** Of more records, the oldest are removed. */
      runs: z.int().min(1).max(100_000).default(1000),
    }),
  },
  "must be `off`, or a map with `days` and `runs`",
);

/** `queue` of `corral.yaml`: where the fleets of this project are, if they are not on this machine. */
export const queueYaml = z.string().refine(isQueueUrl, {
  error:
    "must be `postgres://user@host:port/database`, without a password: put one, or `?passwordfile=FILE`, into CORRAL_QUEUE, or use a .pgpass file",
});

function isQueueUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, password, searchParams } = new URL(text);
  // A project that was cloned would send any file of its user to any server.
  return /^postgres(ql)?:$/.test(protocol) && password === "" && !searchParams.has("passwordfile");
}

/** `corral.yaml`, as in docs/formats/project.md. `sandbox-form.ts` checks which parts of `sandbox` may be combined. */
export const corralYaml = map({
  version: z.literal(1),
  sandbox: sandboxYaml.optional(),
  workers: hostPath.optional(),
  policy: z
    .string()
    .refine((name) => nameFault(name) === null, "must be the name of a policy")
    .default("default"),
  policies: hostPath.optional(),
  fleets: hostPath.optional(),
  approval: map({
    mode: z.enum(APPROVAL_MODE_NAMES).default("interactive"),
    timeout: duration.default(300_000),
    inbox: z.enum(INBOX_MODE_NAMES).default("shared"),
    rules: approvalRules.default([]),
  }).prefault({}),
  delegation: map({
    max_depth: z.int().min(0).max(64).default(5),
    max_calls: z.int().min(0).max(1_000_000).default(100),
    max_parallel: z.int().min(1).max(1024).default(4),
  }).prefault({}),
  git: git.optional(),
  models: models.optional(),
  secrets: secrets.optional(),
  fleet: fleetManner.prefault({}),
  history: history.prefault({}),
  queue: queueYaml.optional(),
});

export type CorralYaml = z.output<typeof corralYaml>;
