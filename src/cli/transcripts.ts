import { realpath } from "node:fs/promises";
import { resolve } from "node:path";
import { TranscriptFolder } from "../agent/transcript/transcript-folder.ts";
import { formatBytes } from "../sandbox/units.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { columns } from "./terminal/table.ts";
import { printJson, say, type Terminal } from "./terminal/terminal.ts";
import { UsageError } from "./terminal/usage-error.ts";
import { transcriptText } from "./transcript-text.ts";

export interface TranscriptOptions {
  readonly project: string;
  readonly json?: boolean;
}

/** `corral transcripts ls`: the conversations of the project's agents, the newest first. */
export async function listVerb({ project, json }: TranscriptOptions, terminal: Terminal): Promise<number> {
  const kept = await (await folderOf(project, terminal)).list();
  if (json) printJson(terminal, kept);
  else if (kept.length === 0) say(terminal, "There are no transcripts of this project.");
  else {
    const rows = kept.map(({ run, bytes, modifiedMs }) => [
      run,
      new Date(modifiedMs).toISOString(),
      formatBytes(bytes),
    ]);
    terminal.stdout.write(`${columns([["RUN", "ENDED", "SIZE"], ...rows])}\n`);
  }
  return 0;
}

/** `corral transcripts show`: one of them, to read; with `--json` line by line as it was written. */
export async function showVerb(run: string, { project, json }: TranscriptOptions, terminal: Terminal): Promise<number> {
  const lines = await (await folderOf(project, terminal)).read(run);
  if (lines === null)
    throw new UsageError(`there is no transcript of a run ${JSON.stringify(run)}; corral transcripts ls lists them`);
  terminal.stdout.write(json ? lines : `${transcriptText(lines)}\n`);
  return 0;
}

/** A folder that is not there any more may have transcripts yet. */
async function folderOf(dir: string, { cwd, env }: Terminal): Promise<TranscriptFolder> {
  const path = resolve(cwd, dir);
  return new TranscriptFolder(stateDirFrom(env), await realpath(path).catch(() => path));
}
