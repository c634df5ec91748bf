import { lookup } from "node:dns/promises";
import { join } from "node:path";
import { type Approver, approveAll, autoDeny, noApprover, type Question } from "../../approval/approver.ts";
import { ruledApprover } from "../../approval/rules.ts";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import { loadPolicy } from "../../declarations/policy/policy.ts";
import type { Project } from "../../declarations/project.ts";
import { parseSize } from "../../declarations/yaml/shape.ts";
import { DEFAULT_MAX_BYTES } from "../../history/retention.ts";
import { EngineUnavailableError } from "../../isolation/port/engine.ts";
import type { EngineImages } from "../../isolation/port/images.ts";
import { outerProcess } from "../../isolation/sources/pin.ts";
import { trustedRoots } from "../../platform/trusted-roots.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import type { Policy } from "../../sandbox/policy.ts";
import { type Env, namedSecrets } from "../../secrets/read-secret.ts";
import { projectMark, StateDirError } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import type { ImagePlace } from "../images/worker-images.ts";
import { type History, type NetworkHost, noHistory } from "../model/environment.ts";
import type { Emit } from "../model/events.ts";
import { ProjectHistory } from "../recorded/run-history.ts";

/** The images that come with Corral. */
const IMAGES_DIR = join(PACKAGE_ROOT, "images");

/** Where the images of a project's workers are looked for and made. */
export function imagePlaceOf(
  { dir, isImplied }: Pick<Project, "dir" | "isImplied">,
  images: EngineImages,
  { stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">,
  { ownerDir, prepare }: Pick<ImagePlace, "ownerDir" | "prepare"> = { ownerDir: null, prepare: null },
): ImagePlace {
  const project = projectMark(dir);
  const place = {
    images,
    imagesDir: IMAGES_DIR,
    projectDir: dir,
    project,
    stateDir,
    ownerDir,
    prepare,
    env: engineEnv,
  };
  return { ...place, ...present({ isImplied }) };
}

export interface OpenOptions {
  readonly projectDir: string;
  /** Where Corral keeps its own: the seal, the gate, sockets. Absolute. */
  readonly stateDir: string;
  /** DOCKER_HOST, DOCKER_CONTEXT and their kind, and HOME: the location of the Engine; and what `git.repos.*.credentials` names. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly emit?: Emit;
  /** In place of the project's approval mode. */
  readonly approvalMode?: ApprovalMode;
  /** Answers in the mode `interactive`; absent: no person can be asked. */
  readonly person?: Approver;
  /** False: views are copies, even if overlays are available. */
  readonly overlays?: boolean;
  /** In place of this machine's own resolver, secrets and certificates. */
  readonly networkHost?: Partial<NetworkHost>;
  /** A program that decides in place of a person, such as a `callbackApprover`. */
  readonly approver?: Approver;
  /** True: a question that no user can answer here waits in the inbox, whatever the project says, unless its inbox is closed. */
  readonly asksElsewhere?: boolean;
  /** A question waits in the inbox, and is asked nowhere else. */
  readonly onWaiting?: (id: string, question: Question) => void;
}

/** The project's rules come first; the mode decides what they do not cover. */
export function approverFor(
  { approval }: Project,
  { approvalMode = approval.mode, approver, person }: Pick<OpenOptions, "approvalMode" | "approver" | "person">,
  shared: (approver: Approver) => Approver = (approver) => approver,
): Approver {
  const byMode: Readonly<Record<ApprovalMode, Approver>> = {
    interactive: shared(approver ?? person ?? noApprover),
    approve_all: approveAll,
    auto_deny: autoDeny,
  };
  return ruledApprover(approval.rules, byMode[approvalMode]);
}

/** The image of the service says so. Nothing is guessed: a container without the host's processes has another process 1. */
export function isContained({ engineEnv }: Pick<OpenOptions, "engineEnv">): boolean {
  return engineEnv.CORRAL_CONTAINED === "1";
}

/** A process with the mounts of the host; null if Corral has the same ones. @throws EngineUnavailableError if it says that it is in a container, and cannot see the host */
export function outerProcessFor(options: Pick<OpenOptions, "engineEnv">): number | null {
  if (!isContained(options)) return null;
  const outer = outerProcess();
  if (outer !== null) return outer;
  const message =
    "CORRAL_CONTAINED=1 says that Corral is in a container, and it cannot see the mounts of the host. Start it with `pid: host` and the capabilities SYS_ADMIN and SYS_PTRACE, as compose.yaml does";
  throw new EngineUnavailableError(message, { reason: "setting", source: null, cause: null });
}

/** Reads each policy once, so that all runs of a project see the same. */
export function policiesOf(project: Project): (name: string) => Promise<Policy> {
  const dirs = project.policiesDir === null ? [] : [project.policiesDir];
  const loaded = new Map<string, Promise<Policy>>();
  return (name) => {
    const policy = loaded.get(name) ?? loadPolicy(name, { dirs });
    loaded.set(name, policy);
    return policy;
  };
}

/** Before anything runs: a call that names a policy which does not exist would fail in the middle of its tree. */
export async function policiesExist(project: Project, policyNamed: (name: string) => Promise<Policy>): Promise<void> {
  const named = [...project.workers.values()].flatMap(({ policyName }) => policyName ?? []);
  await Promise.all([project.policyName, ...new Set(named)].map(policyNamed));
}

/** How this machine reaches the hosts of allow lists. `env`: Corral's own environment. */
export function networkHostOf({ secrets }: Project, env: Env): NetworkHost {
  let roots: Promise<readonly string[]> | null = null;
  return {
    // As every program of this machine resolves names, its own file of hosts included. It cannot be aborted.
    resolveName: async (host) => (await lookup(host, { all: true })).map(({ address }) => address),
    secretOf: namedSecrets(secrets, env),
    trustedRoots() {
      roots ??= trustedRoots(env);
      return roots;
    },
  };
}

/** The history of the runs of a project; closing it waits until everything is written. `engineEnv`: Corral's own environment. */
export function openHistory(
  { dir: projectDir, history: keep }: Pick<Project, "dir" | "history">,
  { stateDir, engineEnv }: { readonly stateDir: string; readonly engineEnv: Env },
  ownerDir: string,
  emit: Emit,
): { readonly history: History; readonly close: () => Promise<void> } {
  const maxBytes = historyBytes(engineEnv);
  if (keep === null || maxBytes === null) return { history: noHistory, close: async () => {} };
  const history = new ProjectHistory({ stateDir, projectDir, ownerDir, keep, maxBytes }, emit);
  return { history, close: () => history[Symbol.asyncDispose]() };
}

/**
 * What the history of all projects may use on the disk, from `CORRAL_HISTORY`; null: nothing is kept.
 *
 * @throws StateDirError
 */
export function historyBytes({ CORRAL_HISTORY: said }: Env): number | null {
  if (said === undefined || said === "") return DEFAULT_MAX_BYTES;
  if (said === "off") return null;
  const bytes = parseSize(said);
  if (bytes !== null) return bytes;
  throw new StateDirError("CORRAL_HISTORY must be `off`, or a size such as 512m or 2g for the history of all projects");
}
