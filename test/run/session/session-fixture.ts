import type { SettledChanges } from "../../../src/run/changes/settled-run.ts";
import { openSession } from "../../../src/run/open-session.ts";
import type { Session } from "../../../src/run/session/session.ts";
import type { ExecToolAnswer, ExecToolRequest } from "../../../src/tools/hands.ts";
import type { ToolResult } from "../../../src/tools/tool.ts";
import { outsideCell } from "../outside-cell.ts";
import { type OpenFixtureOptions, openProject, type ProjectFixture, type ProjectSpec } from "../project-fixture.ts";

/** One worker's session in a project of its own, on the Engine. Disposing removes all of it. */
export interface SessionFixture extends AsyncDisposable {
  readonly project: ProjectFixture;
  readonly session: Session;
  tool(name: string, input: unknown, signal?: AbortSignal): Promise<ToolResult>;
  exec(command: string, more?: Omit<ExecToolRequest, "command">, signal?: AbortSignal): Promise<ExecToolAnswer>;
  /** The id of the session's one cell, as its driver lists it. */
  cellId(): Promise<string>;
  /** The command lines of all processes of the worker's user in the cell, as the host sees them; not Corral's own. */
  processes(): Promise<string[]>;
  /** Ends the session, and applies what was changed in it. */
  finish(): Promise<SettledChanges | null>;
  /** Ends the session alone; the project stays. */
  close(): Promise<void>;
}

/** A worker that may run any command, and reads `docs` and writes `out`. */
export const HANDY = {
  command: ["true"],
  sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw", approval: "pre_approved" }] },
  shell_rules: { default: "pre_approved" },
};

const HANDY_PROJECT: ProjectSpec = {
  workers: { w: HANDY },
  zones: { docs: "ro", out: "rw" },
  files: { "docs/a.txt": "a document\n" },
};

export async function openHandySession(worker: Readonly<Record<string, unknown>> = {}): Promise<SessionFixture> {
  return await openSessionIn({ ...HANDY_PROJECT, workers: { w: { ...HANDY, ...worker } } });
}

/** A session of the worker `w`. */
export async function openSessionIn(spec: ProjectSpec, options: OpenFixtureOptions = {}): Promise<SessionFixture> {
  const project = await openProject(spec, options);
  try {
    return await sessionOf(project, "w");
  } catch (error) {
    await project[Symbol.asyncDispose]();
    throw error;
  }
}

async function sessionOf(project: ProjectFixture, name: string): Promise<SessionFixture> {
  const { corral } = project;
  const worker = corral.project.workers.get(name);
  if (worker === undefined) throw new Error(`the fixture has no worker ${name}`);
  const never = new AbortController().signal;
  const opened = await openSession({ worker, signal: never }, corral.environment);
  if (!opened.ok) throw new Error(`refused: ${JSON.stringify(opened.violations)}`);
  const { session } = opened;
  const close = (): Promise<void> => opened[Symbol.asyncDispose]();
  const cellId = async (): Promise<string> => {
    const [cell, ...others] = await corral.environment.driver.list();
    if (cell === undefined || others.length > 0)
      throw new Error(`there are ${others.length} cells besides ${cell?.id}`);
    return cell.id;
  };
  return {
    project,
    session,
    tool: (tool, input, signal = never) => session.runTool(tool, input, signal),
    exec: (command, more = {}, signal = never) => session.exec({ command, ...more }, signal),
    cellId,
    async processes() {
      const { plan } = await session.cell(never);
      const seen = outsideCell(await cellId()).processes();
      const lines = seen.filter(({ uid }) => uid === plan.user.uid).map(({ line }) => line);
      return lines.filter((line) => line !== plan.command.join(" "));
    },
    finish: () => opened.finish(),
    close,
    async [Symbol.asyncDispose]() {
      await close();
      await project[Symbol.asyncDispose]();
    },
  };
}
