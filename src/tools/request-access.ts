import { z } from "zod";
import { PATH_RULE, pathField } from "./fields.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

export const requestAccessTool = defineTool({
  name: "request_access",
  title: "Ask for access to a directory",
  description:
    "Asks the user for access to a directory that you do not have, until the end of this run. Use it before a command or " +
    "another worker needs the directory; file tools ask by themselves. If it is granted, the next command runs in a new " +
    "container that shows the directory. If not, the answer says why and what can be asked for instead.",
  input: z.strictObject({
    path: pathField(`The directory, or a file in it. ${PATH_RULE}`),
    mode: z.enum(["read", "write"]).default("read").describe("Writing includes reading. Default: read."),
  }),
  uses: "access",
  paths: { path: "read" },
  effects: { readOnly: false, destructive: false, idempotent: true, openWorld: false },
  async run({ path, mode }, hands, signal) {
    const answer = await hands.access({ path, mode }, signal);
    if (!answer.granted) throw new ToolRefusal(answer.code, answer.message);
    const what = mode === "write" ? "Writing to" : "Reading";
    const text =
      answer.scope === "had"
        ? `You already have it: ${answer.path}.`
        : `${what} '${answer.path}' was granted until the end of this run. ` +
          "The next command runs in a new container that shows it: what is in /tmp, the home directory and running programs is lost with it.";
    return { text, data: { path: answer.path, mode, scope: answer.scope } };
  },
});
