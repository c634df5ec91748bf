import { noTranscripts } from "../../agent/transcript.ts";
import { autoDeny } from "../../approval/approver.ts";
import { noTrail } from "../../audit/trail.ts";
import type { Project } from "../../declarations/project.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import type { Driver } from "../../isolation/port/driver.ts";
import { type EnginePort, EngineUnavailableError } from "../../isolation/port/engine.ts";
import { type EngineImages, ImageBuildError } from "../../isolation/port/images.ts";
import { refusedSourcesFor } from "../../isolation/sources/refused-sources.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import { Masking, namedSecrets } from "../../secrets/read-secret.ts";
import { noChangesets } from "../changes/into-project.ts";
import { GrantLedger } from "../grants/ledger.ts";
import { lookingImages } from "../images/worker-images.ts";
import { noHistory, type RunEnvironment } from "../model/environment.ts";
import { SchemaChecks } from "../model/job.ts";
import { approverFor, imagePlaceOf, networkHostOf, type OpenOptions, outerProcessFor, policiesOf } from "./options.ts";

/** A project to inspect and not to run: it also opens without an Engine, and makes nothing, on the disk or on the Engine. */
export interface Preview {
  readonly environment: RunEnvironment;
  readonly project: Project;
  readonly approvalMode: ApprovalMode;
  /** What would make the cells, and why; null without an Engine. */
  readonly driving: EnginePort["driving"] | null;
  /** Why no plan can be made; null if an Engine answers and has the base image. */
  readonly unavailable: string | null;
}

/** In place of the gate's path, if no run has put the gate on this machine yet. */
export const NO_GATE = "GATE";

/** For `explain` and `check`, which show what would be refused whether or not there is an Engine. */
export async function openPreview(
  project: Project,
  options: Pick<OpenOptions, "stateDir" | "engineEnv" | "approvalMode">,
): Promise<Preview> {
  const approvalMode = options.approvalMode ?? project.approval.mode;
  const environment = {
    project,
    policyNamed: policiesOf(project),
    approver: approverFor(project, { approvalMode }),
    nobodyAsked: autoDeny,
    agreedBy: () => autoDeny,
    audit: noTrail,
    ownerDir: "",
    // Nothing runs, so nothing is granted, and no directory is made.
    grants: new GrantLedger(
      "",
      async () => {},
      () => Buffer.alloc(0),
    ),
    history: noHistory,
    changesets: noChangesets,
    models: { providers: project.models, projectDir: project.dir, env: options.engineEnv },
    projectDir: project.dir,
    schemas: new SchemaChecks(),
    transcripts: noTranscripts,
    ...networkHostOf(project, options.engineEnv),
    masking: new Masking(),
    secretInside: namedSecrets(project.secrets, options.engineEnv),
    overlays: false,
    emit: () => {},
    now: () => performance.now(),
  };
  const { driver, engineImages, hostPlaces, gate, driving, unavailable } = await engineOrNone(options, project);
  const images = lookingImages(imagePlaceOf(project, engineImages, options));
  const refusedSources = refusedSourcesFor(options.stateDir, hostPlaces, outerProcessFor(options));
  return {
    environment: { ...environment, driver, itemCells: driver, images, refusedSources, gate: async () => gate },
    project,
    approvalMode,
    driving,
    unavailable,
  };
}

/** In place of an Engine that is missing, or has no images: one that fails with the reason. */
async function engineOrNone(options: Pick<OpenOptions, "stateDir" | "engineEnv">, project: Pick<Project, "driver">) {
  try {
    const engine = (await openEngine({ ...options, looksOnly: true })).ofProject(project.driver);
    const [driver, gate] = [rememberingImages(engine.driver), (await engine.knownGate()) ?? NO_GATE];
    const { images: engineImages, hostPlaces } = engine;
    return { driver, engineImages, hostPlaces, gate, driving: engine.driving, unavailable: null };
  } catch (error) {
    if (!(error instanceof EngineUnavailableError || error instanceof ImageBuildError)) throw error;
    const [driver, engineImages] = [absentEngine(error), absentImages(error)];
    return { driver, engineImages, hostPlaces: null, gate: "", driving: null, unavailable: error.message };
  }
}

/** Asks the Engine once for each image: thousands of call paths need the same few. */
function rememberingImages(driver: Driver): Driver {
  const known = new Map<string, Promise<ImageFacts | null>>();
  return {
    ...driver,
    imageFacts: (image) => {
      const facts = known.get(image) ?? driver.imageFacts(image);
      known.set(image, facts);
      return facts;
    },
  };
}

function absentImages(reason: Error): EngineImages {
  const fail = async (): Promise<never> => {
    throw reason;
  };
  return { status: fail, build: fail, make: fail, made: fail, pull: fail, find: fail, remove: fail };
}

/** In place of an Engine for previews: every request fails with the reason why there is none. */
function absentEngine(reason: Error): Driver {
  const fail = async (): Promise<never> => {
    throw reason;
  };
  return {
    name: "none",
    capabilities: fail,
    imageFacts: fail,
    start: fail,
    startSession: fail,
    startServing: fail,
    startSteward: fail,
    list: fail,
    usage: fail,
    reap: fail,
    removeLeft: async () => {},
  };
}
