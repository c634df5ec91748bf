import { z } from "zod";
import { answer, operation } from "./operation.ts";
import { changeset, policyName, projectName, runError, runId, settledChange, time, workerName } from "./terms.ts";

const MAX_INPUT_BYTES = 8 * 1024 ** 2;

const session = answer({
  id: runId,
  project: projectName,
  worker: z.string(),
  tools: z.array(z.string()),
  openedAt: time,
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

export const sessionOperations = {
  "sessions.open": operation("sessions.open", {
    summary: "Open the sandbox of a worker, to use its tools. It ends after 30 minutes without a call.",
    body: z.strictObject({ project: projectName.optional(), worker: workerName, policy: policyName.optional() }),
    status: 201,
    output: session,
    faults: [404, 415, 422, 503],
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
    maxBodyBytes: MAX_INPUT_BYTES,
    output: toolResult,
    faults: [404, 413, 415, 503],
  }),
  "sessions.close": operation("sessions.close", {
    summary: "End a session, and apply the changes for which there is consent.",
    params: inSession,
    output: settled,
    faults: [404],
  }),
} as const;
