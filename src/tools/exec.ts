import { z } from "zod";
import type { ExecToolAnswer } from "./hands.ts";
import { defineTool } from "./tool.ts";

export const execTool = defineTool({
  name: "exec",
  title: "Run a command",
  description:
    "Runs a command with `sh` in a container that has the same directories as the file tools. The container stays between " +
    "commands: files in /tmp and background programs remain until a command reaches its time limit, which kills every " +
    "process. Files outside the directories that `list_files` shows are lost when the worker ends. Returns the output and " +
    "the exit code. Long output is shortened; the answer then names a file with all of it.",
  input: z.strictObject({
    command: z.string().min(1).max(100_000).describe("The command line; `sh` runs it."),
    cwd: z.string().min(1).max(4096).optional().describe("The directory to run in. Default: the working directory."),
    env: z
      .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
      .optional()
      .describe("Additional environment variables, by name."),
    stdin: z.string().max(4_000_000).optional().describe("The complete standard input. Default: empty."),
    network: z
      .array(z.string().min(1).max(300))
      .max(100)
      .optional()
      .describe(
        "Only these of the hosts that the worker may reach, each as `host:port`; empty: none. Default: all of them.",
      ),
    timeout_ms: z
      .int()
      .min(1)
      .max(86_400_000)
      .optional()
      .describe("Time limit in milliseconds. Default, and at most: the worker's own limit for a command."),
  }),
  uses: "exec",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ command, cwd, env, stdin, network, timeout_ms }, hands, signal) {
    const answer = await hands.exec({ command, cwd, env, stdin, network, timeoutMs: timeout_ms }, signal);
    return { text: textOf(answer), data: { ...answer } };
  },
});

function textOf({ status, exitCode, signal, stdout, stderr, hints, cellReplaced }: ExecToolAnswer): string {
  const end = exitCode !== null ? `exit code ${exitCode}` : (signal ?? "no exit code");
  return [
    stdout,
    stderr === "" ? "" : `[standard error]\n${stderr}`,
    status === "succeeded" ? "" : `[${status}: ${end}]`,
    status === "lost" ? "[Note: the container engine failed. It is unknown if and how the command ended.]" : "",
    ...hints.map((hint) => `[Note: ${hint}]`),
    cellReplaced
      ? "[Note: the container was replaced. Files in /tmp and in the home directory and all running programs are lost.]"
      : "",
  ]
    .filter((part) => part !== "")
    .join("\n");
}
