import { z } from "zod";
import { byKind, map, namedMap } from "../yaml/shape.ts";
import { duration } from "../yaml/units.ts";
import { approvalRules } from "./approval-rules.ts";
import { fleetManner } from "./fleet-yaml.ts";
import { git } from "./git/git-yaml.ts";
import { models } from "./models/models-yaml.ts";
import { mountNameFault, nameFault } from "./names.ts";
import { constraints, hostPath, limits, mode, network, virtualPath } from "./terms.ts";

const MAX_MOUNTS = 100;

const description = z.string().max(500).optional();

/** A zone has its own folder with `mode: direct`; `path` may stand there with `sandboxed` too, for the day one switches. */
const zone = map({ path: hostPath.optional(), mode: mode.default("ro"), ...constraints, description });
const path = map({ root: hostPath, mode: mode.default("ro"), ...constraints, description });
const rootForm = map({ root: hostPath, readonly: z.boolean().default(false), ...constraints, description });

const sandbox = map({
  mode: z.enum(["sandboxed", "direct"]).optional(),
  root: byKind(
    { text: hostPath, map: rootForm },
    "must be a folder (for zones) or a map with its own `root`",
  ).optional(),
  zones: namedMap(zone, mountNameFault, MAX_MOUNTS).optional(),
  paths: namedMap(path, mountNameFault, MAX_MOUNTS).optional(),
  network: network.optional(),
  limits: limits.optional(),
  working_dir: virtualPath.optional(),
});

/** `corral.yaml` (design section 5). Which parts of `sandbox` may stand together is `sandbox-form.ts`. */
export const corralYaml = map({
  version: z.literal(1),
  sandbox: sandbox.optional(),
  workers: hostPath.optional(),
  policy: z
    .string()
    .refine((name) => nameFault(name) === null, "must be the name of a policy")
    .default("default"),
  policies: hostPath.optional(),
  fleets: hostPath.optional(),
  approval: map({
    mode: z.enum(["interactive", "approve_all", "auto_deny"]).default("interactive"),
    timeout: duration.default(300_000),
    rules: approvalRules.default([]),
  }).prefault({}),
  delegation: map({
    max_depth: z.int().min(0).max(64).default(5),
    max_calls: z.int().min(0).max(1_000_000).default(100),
    max_parallel: z.int().min(1).max(1024).default(4),
  }).prefault({}),
  git: git.optional(),
  models: models.optional(),
  fleet: fleetManner.prefault({}),
});

export type CorralYaml = z.output<typeof corralYaml>;
export type SandboxYaml = z.output<typeof sandbox>;
