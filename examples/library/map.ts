/** Runs a worker over many files, each in its own sandbox. Each result arrives as soon as it is ready. */
import { join } from "node:path";
import { openProject } from "corral";

const papers = ["paper.txt", "letter.txt"].map((name) => join(import.meta.dirname, "papers", name));
await using project = await openProject(import.meta.dirname, { env: process.env });
const results = project.map("count", { items: papers, template: { attach: ["{path}"], key: "{name}" }, cache: false });
for await (const { key, status, output } of results) console.log(key, status, output);
