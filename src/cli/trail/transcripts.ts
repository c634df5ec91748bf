import type { TranscriptEntry } from "../../agent/transcript.ts";
import { listTranscripts, readTranscript } from "../../operations/audit.ts";
import { formatBytes } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import { type ProjectOptions, projectPlaceOf } from "../terminal/arguments.ts";
import { printList, type Terminal } from "../terminal/terminal.ts";

const MAX_RESULT_LINES = 20;
/** Of what is a name: a model says which tool it calls, and may call any. */
const MAX_NAME = 80;
const MAX_MESSAGE = 4000;

/** A transcript for people. A line that is none is left out; what one version wrote, another one shows as far as it goes. */
export function transcriptText(lines: string): string {
  return lines
    .split("\n")
    .flatMap((line) => entryOf(line) ?? [])
    .map(entryText)
    .filter((text) => text !== "")
    .join("\n\n");
}

function entryOf(line: string): TranscriptEntry | null {
  try {
    const parsed: unknown = JSON.parse(line);
    return typeof parsed === "object" && parsed !== null && "type" in parsed ? (parsed as TranscriptEntry) : null;
  } catch {
    return null;
  }
}

function entryText(entry: TranscriptEntry): string {
  switch (entry.type) {
    case "begin":
      return [
        `run ${named(entry.run)} of ${named(entry.worker)} on ${named(entry.model)}, ${named(entry.at)}`,
        ...(entry.continues === undefined ? [] : [`continues run ${named(entry.continues)}`]),
      ].join("\n");
    case "system":
      return `[system]\n${indented(entry.text)}`;
    case "told":
      return `[note from Corral]\n${indented(entry.text)}`;
    case "answer": {
      const calls = entry.calls.map(
        ({ tool, input }) => `  → ${named(tool)} ${printableLine(JSON.stringify(input) ?? "", 400)}`,
      );
      return ["[answer]", ...(entry.say === "" ? [] : [indented(entry.say)]), ...calls].join("\n");
    }
    case "result":
      return `[${named(entry.tool)}${entry.code === null ? "" : `: ${named(entry.code)}`}]\n${indented(shortened(entry.text))}`;
    case "end":
      return `[${named(entry.status)}]${entry.message === null ? "" : ` ${printableLine(entry.message, MAX_MESSAGE)}`}`;
    default:
      return "";
  }
}

function named(name: string): string {
  return printableLine(name, MAX_NAME);
}

function indented(text: string): string {
  return printable(text).replaceAll(/^/gm, "  ");
}

function shortened(text: string): string {
  const lines = text.split("\n");
  if (lines.length <= MAX_RESULT_LINES) return text;
  return [
    ...lines.slice(0, MAX_RESULT_LINES),
    `… (${lines.length - MAX_RESULT_LINES} more lines; --json has all)`,
  ].join("\n");
}

/** `corral transcripts ls`: the conversations of the project's agents, the newest first. */
export async function listTranscriptsVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const kept = await listTranscripts(await projectPlaceOf(options, terminal));
  printList(terminal, options.json, kept, {
    head: ["RUN", "ENDED", "SIZE"],
    rowOf: ({ run, bytes, modifiedMs }) => [run, new Date(modifiedMs).toISOString(), formatBytes(bytes)],
    none: "There are no transcripts of this project.",
  });
  return 0;
}

/** `corral transcripts show`: one of them; with `--json` the lines as they were written. */
export async function showTranscriptVerb(run: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const lines = await readTranscript(await projectPlaceOf(options, terminal), run);
  terminal.stdout.write(options.json ? lines : `${transcriptText(lines)}\n`);
  return 0;
}
