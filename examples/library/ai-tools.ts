/** Gives a worker's tools to a loop of the `ai` package. Any of its models can replace the scripted one. */
import { generateText, isStepCount } from "ai";
import { openProject } from "corral";
import { scriptedModel } from "./models/scripted-model.ts";

const model = scriptedModel(
  { tool: "write_file", input: { path: "/notes/hello.txt", content: "hello\n" } },
  { tool: "exec", input: { command: "cat /notes/hello.txt" } },
  { tool: "read_file", input: { path: "/home/me/.ssh/id_ed25519" } },
  "I greeted, and may not see the rest.",
);
await using project = await openProject(import.meta.dirname, { env: process.env });
await using tools = await project.tools("scribe");

const { text, steps } = await generateText({ model, tools: tools.ai, prompt: "Greet.", stopWhen: isStepCount(10) });
for (const { toolResults } of steps) for (const { toolName, output } of toolResults) console.log(toolName, output);
console.log(text);
await tools.close();
