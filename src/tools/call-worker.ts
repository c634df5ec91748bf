import { z } from "zod";
import { pathField } from "./fields.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

const attachment = z.strictObject({
  path: pathField("The file."),
  name: z.string().min(1).max(255).optional().describe("Its name in the called worker; default: its own name."),
});

export const callWorkerTool = defineTool({
  name: "call_worker",
  title: "Call a worker",
  description:
    "Calls another worker and waits for its output. The called worker runs in its own container. It gets `input`, read-only " +
    "copies of the attached files, and never more access than this worker has. If it fails or is refused, the error says why.",
  input: z.strictObject({
    worker: z.string().min(1).max(256).describe("The worker's name."),
    input: z.unknown().optional().describe("The worker's input: any JSON value."),
    attachments: z
      .array(z.union([pathField("A file."), attachment]))
      .max(256)
      .default([])
      .describe("Files that the called worker may read: each a path, or a path with a new name."),
  }),
  uses: "calls",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ worker, input, attachments }, hands, signal) {
    const files = attachments.map((one) => (typeof one === "string" ? { path: one } : present(one)));
    const { status, output, error, result } = await hands.call({ worker, input, attachments: files }, signal);
    if (error !== null) throw new ToolRefusal(error.code, error.message, result);
    const text = typeof output === "string" ? output : JSON.stringify(output);
    return { text, data: { status, output, result } };
  },
});

function present({ path, name }: z.output<typeof attachment>): { path: string; name?: string } {
  return name === undefined ? { path } : { path, name };
}
