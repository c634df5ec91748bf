import { z } from "zod";
import { pathField } from "./fields.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

const attachment = z.strictObject({ path: pathField("The file."), name: z.string().min(1).max(255).optional() });

export const callWorkerTool = defineTool({
  name: "call_worker",
  title: "Call a worker",
  description:
    "Calls another worker and waits for its answer. It runs in a container of its own and gets at most what this worker has: its input, and the attached files, read-only.",
  input: z.strictObject({
    worker: z.string().min(1).max(256).describe("Its name."),
    input: z.unknown().optional().describe("Any JSON."),
    attachments: z
      .array(z.union([pathField("A file."), attachment]))
      .max(256)
      .default([])
      .describe("Files for it to read, each by its path, or with another name."),
  }),
  uses: "calls",
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
