import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { TranscriptFolder } from "../../agent/transcript-folder.ts";
import type { Project } from "../../declarations/project.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { codeOf } from "../../platform/errno.ts";
import type { RunResult } from "../../run/model/result.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { UsageError } from "../terminal/arguments.ts";
import { say, type Terminal } from "../terminal/terminal.ts";

/** `--record`: if recording is not possible, the error comes before anything runs. */
export function refuseRecording(file: string, { name, agent }: WorkerDefinition, { cwd }: Terminal): void {
  if (agent === undefined) throw new UsageError(`--record works only with agents, and ${name} is a command`);
  if (!file.endsWith(".jsonl"))
    throw new UsageError("--record writes lines of JSON: choose a file name that ends in .jsonl");
  if (existsSync(resolve(cwd, file))) throw new UsageError(`--record does not overwrite files, and ${file} exists`);
}

/** The transcript as the run left it. The run has ended: an error now is reported and does not change its status. */
export async function recordRun(file: string, { run }: RunResult, { dir }: Project, terminal: Terminal): Promise<void> {
  const lines = await new TranscriptFolder(stateDirFrom(terminal.env), dir).read(run);
  if (lines === null) return say(terminal, "corral: nothing to record: the agent did not start");
  try {
    await writeFile(resolve(terminal.cwd, file), lines, { flag: "wx", mode: 0o600 });
  } catch (error) {
    const code = codeOf(error);
    say(terminal, `corral: nothing is recorded in ${file} (${code}); \`corral transcripts show ${run} --json\` has it`);
  }
}
