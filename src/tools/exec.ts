import { z } from "zod";
import type { ExecToolAnswer } from "./hands.ts";
import { defineTool } from "./tool.ts";

export const execTool = defineTool({
  name: "exec",
  title: "Run a command",
  description:
    "Runs a shell command in a container that sees the same files as these tools. It stays between commands, for what " +
    "they leave in /tmp and for programs in the background; a time limit ends all of them. Files outside of the listed " +
    "directories are gone when the worker ends. Long output is cut in the answer, and whole in a file that is named there.",
  input: z.strictObject({
    command: z.string().min(1).max(100_000).describe("The command line, for `sh`."),
    cwd: z.string().min(1).max(4096).optional().describe("Where it runs; the working directory if absent."),
    env: z
      .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
      .optional()
      .describe("Further environment variables."),
    stdin: z.string().max(4_000_000).optional().describe("Its whole standard input."),
    timeout_ms: z.int().min(1).max(86_400_000).optional().describe("After this everything that it started is ended."),
  }),
  uses: "exec",
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ command, cwd, env, stdin, timeout_ms }, hands, signal) {
    const answer = await hands.exec({ command, cwd, env, stdin, timeoutMs: timeout_ms }, signal);
    return { text: textOf(answer), data: { ...answer } };
  },
});

function textOf({ status, exitCode, signal, stdout, stderr, hints, cellReplaced }: ExecToolAnswer): string {
  const end = exitCode !== null ? `exit code ${exitCode}` : (signal ?? "no exit code");
  return [
    stdout,
    stderr === "" ? "" : `[standard error]\n${stderr}`,
    status === "succeeded" ? "" : `[${status}: ${end}]`,
    status === "lost" ? "[Note: the container engine failed; whether and how the command ended is not known.]" : "",
    ...hints.map((hint) => `[Note: ${hint}]`),
    cellReplaced
      ? "[Note: the container was replaced; what was in /tmp and in the home directory, and running programs, are gone.]"
      : "",
  ]
    .filter((part) => part !== "")
    .join("\n");
}
