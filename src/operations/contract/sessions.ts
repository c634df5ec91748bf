import { z } from "zod";
import {
  answer,
  changeset,
  count,
  flag,
  operation,
  policyName,
  projectName,
  runError,
  runId,
  settledChange,
  snapshotNamed,
  time,
  workerName,
} from "./operation.ts";
import { resultStatus } from "./runs.ts";

/** Of one use of a tool, as JSON. */
export const SESSION_INPUT_BYTES = 8 * 1024 ** 2;

const session = answer({
  id: runId,
  project: projectName,
  name: z.string().nullable().describe("What it was called when it was opened"),
  worker: z.string(),
  tools: z.array(z.string()),
  openedAt: time,
  isPaused: z.boolean(),
}).meta({ id: "Session" });
const tool = answer({
  name: z.string(),
  title: z.string(),
  description: z.string(),
  inputSchema: z.record(z.string(), z.unknown()).describe("JSON Schema"),
  readOnly: z.boolean(),
}).meta({ id: "SessionTool" });
const toolResult = z.union([
  answer({
    ok: z.literal(true),
    text: z.string(),
    data: z.record(z.string(), z.unknown()),
    image: z.object({ mimeType: z.string(), base64: z.string() }).optional(),
  }).meta({ id: "ToolAnswer" }),
  answer({
    ok: z.literal(false),
    code: z.string(),
    message: z.string(),
    data: z.record(z.string(), z.unknown()),
  }).meta({ id: "ToolRefusal" }),
]);
const settled = answer({ id: runId, changes: z.array(settledChange), changeset, error: runError }).meta({
  id: "SettledSession",
});
const inSession = z.strictObject({ session: runId });
const idleMs = z
  .int()
  .min(1000)
  .max(7 * 86_400_000);

const place = z
  .string()
  .min(1)
  .max(4096)
  .describe("As in the sandbox: `/out/a.txt`, or memory of the container: `/tmp/a`");
const terminal = z.strictObject({ columns: z.int().min(1).max(2000), rows: z.int().min(1).max(2000) });
const order = z.strictObject({
  command: z
    .string()
    .min(1)
    .max(130_000)
    .describe("The command line; `sh` runs it, if the rules of the worker allow it"),
  cwd: z.string().min(1).max(4096).optional(),
  env: z.record(z.string().max(128), z.string().max(32_768)).optional(),
  input: z.boolean().optional().describe("Its input stays open for `sessions.input`. Default: it is empty"),
  terminal: terminal.optional().describe("It runs at a terminal of this size"),
  asOwner: z
    .boolean()
    .optional()
    .describe("Whoever holds the session asks, not a model: no rule of the worker judges it. With the role admin"),
  timeoutMs: z.int().min(1).max(86_400_000).optional(),
});
/** What a session's command may be sent. */
export const SIGNALS = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGTERM",
  "SIGKILL",
  "SIGUSR1",
  "SIGUSR2",
  "SIGSTOP",
  "SIGCONT",
  "SIGWINCH",
] as const;
const commandId = z.string().regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits");
const ofCommand = z.strictObject({ session: runId, command: commandId });
const ended = { status: resultStatus, exitCode: z.int().nullable(), signal: z.string().nullable() };
const command = answer({
  id: commandId,
  command: z.string(),
  startedAt: time,
  isBackground: z.boolean(),
  isTerminal: z.boolean(),
  status: z.union([z.literal("running"), resultStatus]),
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
}).meta({ id: "SessionCommand" });
const commandEvent = z
  .discriminatedUnion("type", [
    answer({ type: z.literal("started"), at: time, command: commandId }),
    answer({
      type: z.literal("printed"),
      at: time,
      stream: z.enum(["stdout", "stderr"]),
      base64: z.string(),
      missingBytes: z.int().describe("Printed before it, and kept no more"),
    }),
    answer({ type: z.literal("ended"), at: time, ...ended }),
  ])
  .meta({ id: "CommandEvent" });

export const sessionOperations = {
  "sessions.open": operation("sessions.open", {
    summary:
      "Open the sandbox of a worker, to use its tools. Unless it is said otherwise, it is paused after 10 minutes without a call or a command, until the next, and ends after 30.",
    body: z.strictObject({
      project: projectName.optional(),
      worker: workerName,
      name: workerName.optional().describe("What to call it; no other open session has this name"),
      pauseAfterMs: idleMs.optional().describe("It is paused after so long without a call or a command"),
      endAfterMs: idleMs.optional().describe("It ends after so long without one; longer than `pauseAfterMs`"),
      policy: policyName.optional(),
      from: snapshotNamed.optional().describe("It goes on from this snapshot, with at most what its session had"),
      ports: z
        .array(z.int().min(1).max(65_535))
        .max(32)
        .optional()
        .describe("Ports that can be connected to beside those that the worker declares; needs the role admin"),
    }),
    status: 201,
    output: session,
    faults: [404, 409, 415, 422, 503],
  }),
  "sessions.list": operation("sessions.list", {
    summary: "List the open sessions of the service.",
    output: z.object({ sessions: z.array(session) }),
  }),
  "sessions.show": operation("sessions.show", {
    summary: "Show an open session.",
    params: inSession,
    output: session,
    faults: [404],
  }),
  "sessions.tools": operation("sessions.tools", {
    summary: "Describe the tools of a session, with the schema of each input, to give them to a model.",
    params: inSession,
    output: z.object({ tools: z.array(tool) }),
    faults: [404],
  }),
  "sessions.use": operation("sessions.use", {
    summary: "Use a tool in a session. A refusal is an answer too: `ok` is false then.",
    params: z.strictObject({
      session: runId,
      tool: z
        .string()
        .max(64)
        .regex(/^[a-z_]+$/),
    }),
    body: z.record(z.string(), z.unknown()).describe("The tool's input"),
    maxBodyBytes: SESSION_INPUT_BYTES,
    output: toolResult,
    faults: [404, 413, 415, 503],
  }),
  "sessions.exec": operation("sessions.exec", {
    summary:
      "Run a command in a session, and follow it. It waits for the reader of this answer, and ends with it. Its first event names it, for its input and signals.",
    params: inSession,
    body: order,
    events: commandEvent,
    isLasting: true,
    faults: [404, 415, 422, 503],
  }),
  "sessions.start": operation("sessions.start", {
    summary:
      "Start a command in a session, and answer when it has begun. It runs until it ends, is signalled, or the session ends; the last MiB of what it prints is kept.",
    params: inSession,
    body: order,
    status: 201,
    output: command,
    faults: [404, 415, 422, 503],
  }),
  "sessions.commands": operation("sessions.commands", {
    summary: "List the started commands of a session: those that run, and the last that have ended.",
    params: inSession,
    output: z.object({ commands: z.array(command) }),
    faults: [404],
  }),
  "sessions.command": operation("sessions.command", {
    summary: "Show a started command. `wait`: answers when it has ended, at the latest after so many seconds.",
    params: ofCommand,
    query: z.strictObject({ wait: count(0, 60).optional() }),
    isLasting: true,
    output: command,
    faults: [404],
  }),
  "sessions.output": operation("sessions.output", {
    summary: "Follow what a started command prints, from the oldest that is kept to its end.",
    params: ofCommand,
    query: z.strictObject({ follow: flag.optional().describe("false: only what is there") }),
    events: commandEvent,
    isLasting: true,
    faults: [404],
  }),
  "sessions.input": operation("sessions.input", {
    summary:
      "Write the body to the input of a command. `end`: there is no more. Answers when the command has read it. That of a command that no rule judges needs the role admin.",
    params: ofCommand,
    query: z.strictObject({ end: flag.optional() }),
    takesBytes: { contentType: "application/octet-stream", description: "At most 1 MiB" },
    isLasting: true,
    output: answer({ bytes: z.int() }),
    faults: [404, 413, 415, 422],
  }),
  "sessions.signal": operation("sessions.signal", {
    summary: "Send a signal to a command and all that it has started, and to nothing else.",
    params: ofCommand,
    body: z.strictObject({ signal: z.enum(SIGNALS) }),
    output: command,
    faults: [404, 409, 415],
  }),
  "sessions.resize": operation("sessions.resize", {
    summary: "Tell a command at a terminal the size of it.",
    params: ofCommand,
    body: terminal,
    output: command,
    faults: [404, 415],
  }),
  "sessions.upload": operation("sessions.upload", {
    summary:
      "Write the body to a file of the session, or the entries of a tar archive into a folder. A file is there when it is complete.",
    params: inSession,
    query: z.strictObject({ path: place, kind: z.enum(["file", "folder"]).optional() }),
    takesBytes: { contentType: "application/octet-stream", description: "The file, or a tar archive; of any size" },
    isLasting: true,
    output: answer({ kind: z.enum(["file", "folder"]), bytes: z.int(), files: z.int() }).meta({ id: "Uploaded" }),
    faults: [404, 415, 422, 503],
  }),
  "sessions.download": operation("sessions.download", {
    summary:
      "Read a file of the session, or a folder as a tar archive. The header `x-corral-kind` says which. No link is followed.",
    params: inSession,
    query: z.strictObject({
      path: place,
      maxBytes: count(1, 1e15 - 1)
        .optional()
        .describe("An answer that would have more ends before its end; absent: of any size"),
    }),
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "The file, or a tar archive" },
    faults: [404, 422, 503],
  }),
  "sessions.pause": operation("sessions.pause", {
    summary: "Stop everything that runs in a session, until it is resumed. No command begins meanwhile.",
    params: inSession,
    output: session,
    faults: [404, 503],
  }),
  "sessions.resume": operation("sessions.resume", {
    summary: "Let a paused session continue.",
    params: inSession,
    output: session,
    faults: [404, 503],
  }),
  "sessions.close": operation("sessions.close", {
    summary: "End a session, and apply the changes for which there is consent.",
    params: inSession,
    query: z.strictObject({
      discard: flag.optional().describe("true: apply and keep nothing of what was written in staged directories"),
      ask: flag.optional().describe("false: ask nobody; what needs consent waits as changes"),
    }),
    output: settled,
    faults: [404],
  }),
} as const;

const portNumber = z
  .string()
  .regex(/^\d{1,5}$/, "a number")
  .transform(Number)
  .refine((port) => port >= 1 && port <= 65_535, "from 1 to 65535")
  .meta({ type: "integer", minimum: 1, maximum: 65_535, pattern: undefined });
const ofPort = z.strictObject({ session: runId, port: portNumber });

const sessionPort = answer({
  port: z.int(),
  name: z.string().nullable().describe("That the worker gives it"),
  isAllowed: z.boolean().describe("The worker declares it, or who opened the session named it"),
  isListening: z.boolean(),
  address: z.string().nullable().describe("At which it is shown to browsers of this machine; null: it is not"),
}).meta({ id: "SessionPort" });

const shownPort = answer({
  port: z.int(),
  url: z.string().describe("For a browser on the machine of the service: it works once, within two minutes"),
  address: z.string().describe("For programs on the machine of the service, with the header"),
  header: answer({ name: z.string(), value: z.string() }).meta({ id: "PortHeader" }),
}).meta({ id: "ShownPort" });

export const portOperations = {
  "ports.list": operation("ports.list", {
    summary: "List the ports of a session: those that can be connected to, and others that something listens on.",
    params: z.strictObject({ session: runId }),
    output: z.object({ ports: z.array(sessionPort) }),
    faults: [404, 503],
  }),
  "ports.show": operation("ports.show", {
    summary:
      "Show a port of a session, by HTTP and WebSockets, at an address of its own of the service's machine, until the session ends.",
    params: ofPort,
    output: shownPort,
    status: 201,
    faults: [404, 422, 503],
  }),
  "ports.connect": operation("ports.connect", {
    summary:
      "Connect to a port of a session. Needs `connection: upgrade` and `upgrade: corral-port`: after status 101, the connection is that to the port.",
    params: ofPort,
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "Only with an upgrade" },
    faults: [404, 422, 503],
  }),
} as const;

const ofSnapshot = z.strictObject({ session: runId, snapshot: snapshotNamed });
const paths = z.array(z.string());
const snapshot = answer({
  id: z.string(),
  name: z.string().nullable().describe("null: it goes with its session"),
  worker: z.string(),
  session: runId,
  sessionName: z.string().nullable(),
  createdAt: time,
  isLast: z.boolean().describe("Made at the end of its session, which can go on from it"),
  has: paths.describe("The directories that are in it"),
  lacks: paths.describe("Directories that the session wrote directly, which are not"),
}).meta({ id: "Snapshot" });
const difference = answer({
  path: z.string(),
  kind: z.enum(["create", "modify", "delete"]),
  type: z.enum(["file", "directory", "link", "other"]),
  bytes: z.int().nullable(),
}).meta({ id: "SnapshotDifference" });

/** In one answer. */
export const MAX_DIFFERENCES = 1000;

export const snapshotOperations = {
  "snapshots.list": operation("snapshots.list", {
    summary: "List the snapshots of the worker of a session, the oldest first, also those of other sessions of it.",
    params: z.strictObject({ session: runId }),
    output: z.object({ snapshots: z.array(snapshot) }),
    faults: [404, 422],
  }),
  "snapshots.take": operation("snapshots.take", {
    summary:
      "Take a snapshot of what a session wrote in staged directories. What runs in it ends. `sessions.open` with `from` begins from it.",
    params: z.strictObject({ session: runId }),
    body: z.strictObject({
      name: z.string().max(64).nullish().describe("It stays when the session has ended; null: it goes with it"),
    }),
    status: 201,
    output: snapshot,
    faults: [404, 415, 422, 503],
  }),
  "snapshots.remove": operation("snapshots.remove", {
    summary: "Remove a snapshot. Sessions that began from it stay as they are.",
    params: ofSnapshot,
    output: snapshot,
    faults: [404, 422],
  }),
  "snapshots.restore": operation("snapshots.restore", {
    summary: "Show in a session what a snapshot has, in place of all that was written since. What runs in it ends.",
    params: ofSnapshot,
    output: snapshot,
    faults: [404, 422, 503],
  }),
  "snapshots.diff": operation("snapshots.diff", {
    summary: "List what a session has that a snapshot has not, and the other way round.",
    params: ofSnapshot,
    output: z.object({
      differences: z.array(difference),
      more: z.boolean().describe(`True: there are more than these ${MAX_DIFFERENCES}`),
    }),
    isLasting: true,
    faults: [404, 422, 503],
  }),
} as const;
