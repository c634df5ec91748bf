import { randomInt } from "node:crypto";
import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { openCorral, type RunEvent, type RunResult, run } from "../../../src/index.ts";
import { collectDocuments } from "./collect.ts";
import { fillInbox, type InboxDocument, type InboxFacts } from "./inbox.ts";
import { findLeaks } from "./leaks.ts";
import { openListener } from "./listener.ts";
import { snapshot } from "./snapshot.ts";

export interface JobRequest {
  /** A folder laid out as `examples/inbox` is. */
  readonly projectDir: string;
  /** Corral's own place; absolute. */
  readonly stateDir: string;
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  /** Told of everything that happens, that of the set-up run included. */
  readonly emit?: (event: RunEvent) => void;
  /** Tells a person what is going on. */
  readonly say: (line: string) => void;
}

export interface Job {
  readonly result: RunResult;
  readonly documents: readonly InboxDocument[];
  /** What got out of a cell, or into one, that should not have; none on a sound machine. Each is a sentence. */
  readonly leaks: readonly string[];
  /** Cells that are still there after the run; none where Corral cleaned up. */
  readonly cellsLeft: number;
  readonly facts: InboxFacts;
}

/** The name under which the secret stands in this process's own environment while the job runs. */
const CANARY_VARIABLE = "INBOX_CANARY";

/** Fills the inbox, runs `triage` on it, and then looks on the host for anything that a hostile document achieved. */
export async function runJob(request: JobRequest): Promise<Job> {
  const { projectDir, stateDir, engineEnv, signal, say, emit = () => {} } = request;
  await using listener = await openListener();
  await using corral = await openCorral({ projectDir, stateDir, engineEnv, emit });
  await collectDocuments(corral, signal, say);

  const facts: InboxFacts = {
    workDir: await realpath(join(projectDir, ".work")),
    projectDir: corral.project.dir,
    canary: newSecret(),
    sibling: newSecret(),
    port: listener.port,
    address: listener.address,
  };
  const documents = await fillInbox(facts);
  say(`triage reads ${documents.length} documents`);
  const before = await snapshot(corral.project.dir);

  const worker = corral.project.workers.get("triage");
  if (worker === undefined) throw new Error(`there is no worker triage in ${projectDir}`);
  using _ = withVariable(CANARY_VARIABLE, facts.canary);
  const result = await run({ worker, signal }, corral.environment);

  const after = await snapshot(corral.project.dir);
  const leaks = await findLeaks({ facts, documents, result, before, after, visitors: listener.visitors() });
  const cells = await corral.environment.driver.list();
  return { result, documents, leaks, facts, cellsLeft: cells.filter((cell) => cell.root === result.run).length };
}

/** Digits alone: no summary of words can hold it by accident. */
function newSecret(): string {
  return Array.from({ length: 4 }, () => randomInt(10_000, 99_999)).join("0");
}

function withVariable(name: string, value: string): Disposable {
  process.env[name] = value;
  return { [Symbol.dispose]: () => Reflect.deleteProperty(process.env, name) };
}
