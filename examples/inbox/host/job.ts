import { randomInt } from "node:crypto";
import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { type OpenedProject, openProject, type RunEvent, type RunResult } from "../../../src/index.ts";
import { type Clerk, type ClerkEvidence, clerkOf, transcriptOf } from "./clerk.ts";
import { collectDocuments } from "./collect.ts";
import { fillInbox, type InboxDocument, type InboxFacts } from "./inbox.ts";
import { findLeaks, type RunEvidence } from "./leaks.ts";
import { type Listener, openListener } from "./listener.ts";
import { snapshot } from "./snapshot.ts";
import { recordsOfRun } from "./trail.ts";

export interface JobRequest {
  /** A folder laid out as `examples/inbox` is. */
  readonly projectDir: string;
  /** Corral's state directory; absolute. */
  readonly stateDir: string;
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  /** Receives all events, also those of the set-up run. */
  readonly emit?: (event: RunEvent) => void;
  /** Reports progress to the user. */
  readonly say: (line: string) => void;
}

export interface Job {
  readonly result: RunResult;
  readonly documents: readonly InboxDocument[];
  /** What got out of a cell or into one and should not have, each as a sentence. Empty if isolation works. */
  readonly leaks: readonly string[];
  /** The agent that read the letters afterwards and obeyed them. */
  readonly clerk: Clerk;
  /** The number of cells that still exist after the runs; 0 if Corral cleaned up. */
  readonly cellsLeft: number;
  readonly facts: InboxFacts;
}

/** The environment variable of this process that holds the secret while the job runs. */
const CANARY_VARIABLE = "INBOX_CANARY";

/** Fills the inbox, runs `triage` on it and `clerk` on the letters, and checks on the host what they achieved. */
export async function runJob(request: JobRequest): Promise<Job> {
  const { clerk, ...job } = await bothRuns(request);
  // The audit trail is complete only after Corral is closed.
  const { run } = clerk.result;
  const { projectDir } = job.facts;
  const records = await recordsOfRun(run, request.stateDir, projectDir);
  const transcript = await transcriptOf(run, request.stateDir, projectDir);
  return { ...job, clerk: await clerkOf({ ...clerk, records, transcript }) };
}

type BothRuns = Omit<Job, "clerk"> & { readonly clerk: Omit<ClerkEvidence, "records" | "transcript"> };

async function bothRuns(request: JobRequest): Promise<BothRuns> {
  const { projectDir, stateDir, engineEnv, signal, say, emit = () => {} } = request;
  const events: RunEvent[] = [];
  await using listener = await openListener();
  await using project = await openProject(projectDir, {
    stateDir,
    env: engineEnv,
    emit(event) {
      if (event.worker === "clerk") events.push(event);
      emit(event);
    },
  });
  await collectDocuments(project, signal, say);

  const facts: InboxFacts = {
    workDir: await realpath(join(projectDir, ".work")),
    projectDir: project.definition.dir,
    canary: newSecret(),
    sibling: newSecret(),
    port: listener.port,
    address: listener.address,
  };
  const documents = await fillInbox(facts);
  using _ = withVariable(CANARY_VARIABLE, facts.canary);
  say(`triage reads ${documents.length} documents`);
  const triage = await runBetween("triage", project, facts, listener, signal);
  const leaks = await findLeaks({ ...triage, documents });
  say("clerk reads letters, and obeys them");
  const clerk = await runBetween("clerk", project, facts, listener, signal);

  const roots = [triage.result.run, clerk.result.run];
  const cells = (await project.cells()).filter((cell) => roots.includes(cell.root));
  return { result: triage.result, documents, leaks, facts, cellsLeft: cells.length, clerk: { ...clerk, events } };
}

/** Runs a worker, and takes a snapshot of the project before and after it. */
async function runBetween(
  name: string,
  project: OpenedProject,
  facts: InboxFacts,
  listener: Listener,
  signal: AbortSignal,
): Promise<RunEvidence> {
  const { dir } = project.definition;
  const before = await snapshot(dir);
  const visitorsBefore = listener.visitors();
  const result = await project.run(name, { signal });
  const visitors = listener.visitors() - visitorsBefore;
  return { facts, result, before, after: await snapshot(dir), visitors };
}

/** Digits only: no summary of words contains them by accident. */
function newSecret(): string {
  return Array.from({ length: 4 }, () => randomInt(10_000, 99_999)).join("0");
}

function withVariable(name: string, value: string): Disposable {
  process.env[name] = value;
  return { [Symbol.dispose]: () => Reflect.deleteProperty(process.env, name) };
}
