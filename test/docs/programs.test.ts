import { execFile } from "node:child_process";
import { glob, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { PROGRAM } from "../cli/program.ts";

const execute = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
/** The types as the package has them. */
const DIST = join(PROGRAM, "../..");

/** What a block of a page takes for given: what its page has shown before. */
function preamble(block: string): string {
  const lines: string[] = [];
  const needs = (name: string): boolean => new RegExp(`\\b${name}\\b`).test(block);
  const declares = (name: string): boolean =>
    new RegExp(`\\b(?:const|using) ${name}\\b|import [^;]*\\b${name}\\b`).test(block);
  const given = (name: string, line: string): void => {
    if (needs(name) && !declares(name)) lines.push(line);
  };
  given("callbackApprover", 'import { callbackApprover } from "corral";');
  given("openProject", 'import { openProject } from "corral";');
  given(
    "generateText",
    'import { generateText, isStepCount, type LanguageModel } from "ai";\ndeclare const model: LanguageModel;',
  );
  given("prompt", "declare const prompt: string;");
  given("project", 'declare const project: Awaited<ReturnType<typeof import("corral").openProject>>;');
  return `${lines.join("\n")}\n`;
}

it("every program of a page compiles with the types of the package", async () => {
  const work = join(ROOT, "node_modules/.corral-pages");
  await mkdir(work, { recursive: true });
  const dir = await mkdtemp(join(work, "programs-"));
  try {
    const places = new Map<string, string>();
    for await (const page of glob(["*.md", "docs/**/*.md", "examples/*/README.md"], { cwd: ROOT })) {
      const text = await readFile(join(ROOT, page), "utf8");
      for (const [, block = ""] of text.matchAll(/^```ts\n([\s\S]*?)^```$/gm)) {
        const name = `program-${places.size}.mts`;
        places.set(name, page);
        await writeFile(join(dir, name), `${preamble(block)}export {};\n${block}`);
      }
    }
    expect(places.size).toBeGreaterThan(6);
    const paths = { corral: [join(DIST, "index.d.ts")], "corral/sandbox": [join(DIST, "sandbox.d.ts")] };
    const compilerOptions = { paths, noUnusedLocals: false, noUnusedParameters: false };
    await writeFile(
      join(dir, "tsconfig.json"),
      JSON.stringify({ extends: join(ROOT, "tsconfig.json"), compilerOptions, include: ["*.mts"] }),
    );
    const compiler = join(ROOT, "node_modules/typescript/bin/tsc");
    const command = [compiler, "--checkers", "1", "-p", dir];
    const failed = await execute(process.execPath, command).catch((error: { stdout: string }) => error);
    const errors = failed.stdout.replace(
      /\S*(program-\d+\.mts)/g,
      (_, name: string) => `${places.get(name)} (${name})`,
    );
    expect(errors).toBe("");
  } finally {
    await rm(dir, { recursive: true });
  }
});
