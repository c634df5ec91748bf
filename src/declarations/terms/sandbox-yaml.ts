import { z } from "zod";
import { byKind, map, namedMap } from "../yaml/shape.ts";
import { named } from "./named.ts";
import { mountNameFault, nameFault } from "./names.ts";
import { network } from "./network.ts";
import { MAX_SECRETS } from "./secret-yaml.ts";
import { constraints, hostPath, limits, mode, mountPlace, refuseSamePlace, virtualPath } from "./terms.ts";

const MAX_MOUNTS = 100;

const description = z.string().max(500).optional();

/** `path` is relative to the project with `mode: direct`, and to the folder of all zones with `sandboxed`. */
const zone = map({
  path: hostPath.optional(),
  at: mountPlace.optional(),
  mode: mode.default("ro"),
  ...constraints,
  description,
});
/** `create`: a folder below the project that does not exist is made by the first run. */
const path = map({
  root: hostPath,
  at: mountPlace.optional(),
  mode: mode.default("ro"),
  create: z.literal(true, "can only be `true`; leave it out otherwise").optional(),
  ...constraints,
  description,
});
const rootForm = map({ root: hostPath, readonly: z.boolean().default(false), ...constraints, description });

export const sandboxYaml = map({
  mode: z.enum(["sandboxed", "direct"]).optional(),
  root: byKind(
    { text: hostPath, map: rootForm },
    "must be a folder (for zones) or a map with its own `root`",
  ).optional(),
  zones: namedMap(zone, mountNameFault, MAX_MOUNTS).superRefine(refuseSamePlace).optional(),
  paths: namedMap(path, mountNameFault, MAX_MOUNTS).superRefine(refuseSamePlace).optional(),
  own_paths: z.enum(["inside", "allowed"]).optional(),
  network: network.optional(),
  /** The secrets that workers may have inside of their cells. */
  secrets: z.array(named(nameFault)).max(MAX_SECRETS).optional(),
  limits: limits.optional(),
  working_dir: virtualPath.optional(),
});

export type SandboxYaml = z.output<typeof sandboxYaml>;
