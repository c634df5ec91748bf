import { z } from "zod";
import { defineTool, PATH_RULE, pathField, ToolRefusal } from "./tool.ts";

const NEW_CONTAINER =
  "The next command runs in a new container that shows it: what is in /tmp, the home directory and running programs is lost with it.";

export const requestAccessTool = defineTool({
  name: "request_access",
  title: "Ask for access to a directory or a host",
  description:
    "Asks the user for access to a directory, or to a host of the network, that you do not have. It lasts until the end of " +
    "this run. Use it before a command or another worker needs the directory or the host; file tools ask by themselves. If a directory is " +
    "granted, the next command runs in a new container that shows it; a host can be reached at once. If not, the answer says why and " +
    "what can be asked for instead. Give `path`, or `host`.",
  input: z
    .strictObject({
      path: pathField(`The directory, or a file in it. ${PATH_RULE}`).optional(),
      mode: z.enum(["read", "write"]).default("read").describe("Writing includes reading. Default: read."),
      host: z.string().min(1).max(300).optional().describe("The host and its port, such as `api.example.org:443`."),
      reason: z.string().min(1).max(500).optional().describe("With `host`: what it is for. The user reads it."),
    })
    .refine(({ path, host }) => (path === undefined) !== (host === undefined), "give either `path` or `host`"),
  uses: "access",
  paths: { path: "read" },
  effects: { readOnly: false, destructive: false, idempotent: true, openWorld: false },
  async run({ path, mode, host, reason }, hands, signal) {
    const answer = await hands.access(path === undefined ? { host: host ?? "", reason } : { path, mode }, signal);
    if (!answer.granted) throw new ToolRefusal(answer.code, answer.message);
    const what = "host" in answer ? answer.host : answer.path;
    if (answer.scope === "had") {
      return { text: `You already have it: ${what}.`, data: { ...dataOf(answer, mode), scope: answer.scope } };
    }
    const text =
      "host" in answer
        ? `Reaching '${what}' was granted until the end of this run.`
        : `${mode === "write" ? "Writing to" : "Reading"} '${what}' was granted until the end of this run. ${NEW_CONTAINER}`;
    return { text, data: { ...dataOf(answer, mode), scope: answer.scope } };
  },
});

function dataOf(answer: { readonly host: string } | { readonly path: string }, mode: string) {
  return "host" in answer ? { host: answer.host } : { path: answer.path, mode };
}
