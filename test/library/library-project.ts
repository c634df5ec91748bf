import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type OpenedProject, type OpenProjectOptions, openProject, type RunEvent } from "../../src/index.ts";
import { type ProjectSpec, writeProject } from "../run/project-fixture.ts";
import { giveGate } from "../tiers/give-gate.ts";

/** A project in a temporary folder, opened as a program opens it. Disposing closes it, and removes all of it. */
export interface LibraryProject extends AsyncDisposable {
  readonly dir: string;
  readonly stateDir: string;
  readonly project: OpenedProject;
  readonly events: readonly RunEvent[];
}

export async function libraryProject(spec: ProjectSpec, options: OpenProjectOptions = {}): Promise<LibraryProject> {
  const base = await mkdtemp(join(tmpdir(), "cr-"));
  const [dir, stateDir] = [join(base, "p"), join(base, "s")];
  const events: RunEvent[] = [];
  writeProject(dir, spec);
  await giveGate(stateDir);
  const project = await openProject(dir, {
    env: process.env,
    stateDir,
    emit: (event) => void events.push(event),
    ...options,
  });
  return {
    dir,
    stateDir,
    project,
    events,
    async [Symbol.asyncDispose]() {
      await project[Symbol.asyncDispose]();
      await rm(base, { recursive: true, force: true });
    },
  };
}
