import { SnapshotStore } from "../../changes/layers/snapshot-store.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { shownSnapshot } from "../../run/session/session-snapshots.ts";
import { heldSessions } from "../../serve/held-session.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { projectPaths, statePaths } from "../../state/state-paths.ts";
import { printableLine } from "../../text/visible.ts";
import { projectFolder, UsageError } from "../terminal/arguments.ts";
import { printList, printResult, say, type Terminal } from "../terminal/terminal.ts";
import { using } from "./held.ts";
import { type HoldOptions, startHolder } from "./hold.ts";

type Snapshot = AnswerOf<"snapshots.take">;
type Difference = AnswerOf<"snapshots.diff">["differences"][number];

interface JsonOption {
  readonly json?: boolean;
}

export async function snapshotVerb(
  session: string,
  name: string | undefined,
  { json }: JsonOption,
  terminal: Terminal,
): Promise<number> {
  return await using(session, terminal, async ({ client, session: id }) => {
    const taken = await client.call("snapshots.take", { session: id, name: name ?? null });
    printResult(terminal, json, taken, () => taken.id);
    if (!json && taken.lacks.length > 0)
      say(
        terminal,
        `corral: written directly, and not in it: ${taken.lacks.map((one) => printableLine(one, 200)).join(", ")}`,
      );
    return 0;
  });
}

export async function restoreVerb(session: string, snapshot: string, terminal: Terminal): Promise<number> {
  return await using(session, terminal, async ({ client, session: id }) => {
    await client.call("snapshots.restore", { session: id, snapshot });
    return 0;
  });
}

export async function differencesVerb(
  session: string,
  snapshot: string,
  { json }: JsonOption,
  terminal: Terminal,
): Promise<number> {
  return await using(session, terminal, async ({ client, session: id }) => {
    const { differences, more } = await client.call("snapshots.diff", { session: id, snapshot });
    printList<Difference>(terminal, json, differences, {
      head: ["CHANGE", "TYPE", "BYTES", "PATH"],
      rowOf: ({ kind, type, bytes, path }) => [kind, type, String(bytes ?? "-"), printableLine(path, 500)],
      none: "The session has what the snapshot has.",
    });
    if (more) say(terminal, "corral: there are more differences than these");
    return 0;
  });
}

/** From a session that is open: a snapshot of it is taken for this, and goes with it. */
export async function forkVerb(
  wanted: string,
  options: Pick<HoldOptions, "project" | "idle" | "endAfter" | "name" | "json">,
  terminal: Terminal,
): Promise<number> {
  if (options.name === undefined) throw new UsageError("say what to call the fork: --name NAME");
  const held = (await heldSessions(stateDirFrom(terminal.env))).find(
    ({ name, id }) => name === wanted || id === wanted,
  );
  if (held === undefined) {
    const { id, worker } = await storeAt(options.project, terminal).then((store) => found(store, wanted));
    return await startHolder(worker, { ...options, from: id }, terminal);
  }
  return await using(held.id, terminal, async ({ client, session }) => {
    const { id, worker } = await client.call("snapshots.take", { session, name: null });
    return await startHolder(worker, { ...options, project: held.project, from: id }, terminal);
  });
}

export async function snapshotsVerb(
  session: string | undefined,
  { project, rm, json }: JsonOption & { readonly project: string; readonly rm?: string },
  terminal: Terminal,
): Promise<number> {
  if (session !== undefined)
    return await using(session, terminal, async ({ client, session: id }) => {
      if (rm !== undefined) await client.call("snapshots.remove", { session: id, snapshot: rm });
      else printSnapshots((await client.call("snapshots.list", { session: id })).snapshots, json, terminal);
      return 0;
    });
  const store = await storeAt(project, terminal);
  if (rm === undefined) printSnapshots((await store.list()).map(shownSnapshot), json, terminal);
  else {
    const { id } = await found(store, rm);
    await store.remove((one) => one.id === id);
  }
  return 0;
}

async function storeAt(project: string, terminal: Terminal): Promise<SnapshotStore> {
  const stateDir = stateDirFrom(terminal.env);
  const dir = await projectFolder(project, terminal);
  return new SnapshotStore(projectPaths(stateDir, dir).snapshots, statePaths(stateDir).live);
}

async function found(store: SnapshotStore, wanted: string) {
  return await store.find(wanted).catch((error: Error) => {
    throw new UsageError(`${printableLine(error.message, 200)}; \`corral session snapshots\` lists them`, {
      cause: error,
    });
  });
}

function printSnapshots(all: readonly Snapshot[], json: boolean | undefined, terminal: Terminal): void {
  printList<Snapshot>(terminal, json, all, {
    head: ["ID", "NAME", "WORKER", "SESSION", "TAKEN", "DIRECTORIES"],
    rowOf: ({ id, name, worker, session, sessionName, createdAt, isLast, has }) => [
      id,
      name ?? (isLast ? "(the last one)" : "-"),
      printableLine(worker, 80),
      sessionName ?? session,
      createdAt,
      printableLine(has.join(" "), 200),
    ],
    none: "There are no snapshots. `corral session snapshot SESSION NAME` takes one.",
  });
}
