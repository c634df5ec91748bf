import type { AnswerOf } from "../../operations/contract/table.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { type HoldOptions, UsageError } from "../terminal/arguments.ts";
import { type AtService, printList, printResult, say, type Terminal } from "../terminal/terminal.ts";
import { idleAt, using } from "./held.ts";

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

type ForkOptions = Pick<HoldOptions, "project" | "idle" | "endAfter" | "name" | "json">;

/** From a session that is open: a snapshot of it is taken for this, and goes with it. */
export async function forkVerb(wanted: string, options: ForkOptions, terminal: Terminal): Promise<number> {
  if (terminal.service !== undefined) return await forkAt(terminal.service, wanted, options, terminal);
  if (options.name === undefined) throw new UsageError("say what to call the fork: --name NAME");
  const { snapshotsHere, startHolder } = await import("./hold.ts");
  const { heldSessions } = await import("../../serve/held-session.ts");
  const { stateDirFrom } = await import("../../state/state-dir.ts");
  const all = await heldSessions(stateDirFrom(terminal.env));
  const held = all.find(({ name, id }) => name === wanted || id === wanted);
  if (held === undefined) {
    const { id, worker } = await (await snapshotsHere(options.project, terminal)).find(wanted);
    return await startHolder(worker, { ...options, from: id }, terminal);
  }
  return await using(held.id, terminal, async ({ client, session }) => {
    const { id, worker } = await client.call("snapshots.take", { session, name: null });
    return await startHolder(worker, { ...options, project: held.project, from: id }, terminal);
  });
}

/** The service holds the fork. What begins from a snapshot is started by `start --from`, which names the worker. */
async function forkAt({ client }: AtService, wanted: string, options: ForkOptions, terminal: Terminal) {
  const { name, json } = options;
  const called = { ...idleAt(options), ...present({ name }) };
  return await using(wanted, terminal, async ({ session }) => {
    const { worker, project } = await client.call("sessions.show", { session });
    const { id: from } = await client.call("snapshots.take", { session, name: null });
    const shown = await client.call("sessions.open", { worker, project, from, ...called });
    printResult(terminal, json, shown, () => shown.name ?? shown.id);
    return 0;
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
  if (terminal.service !== undefined)
    throw new UsageError("name a session of the service: it lists the snapshots of the worker of a session");
  const all = await (await import("./hold.ts")).snapshotsHere(project, terminal);
  if (rm === undefined) printSnapshots(await all.list(), json, terminal);
  else await all.remove(rm);
  return 0;
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
