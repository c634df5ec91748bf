import { writeFileSync } from "node:fs";
import type { Reporter, TestCase, TestModule, TestSuite } from "vitest/node";

type Part = TestModule | TestSuite | TestCase;

/** An environment variable: where a run writes the files that failed, as JSON, an array of `FailedFile`. Empty where something failed outside of tests. */
export const FAILED_FILES = "CORRAL_TESTS_FAILED_FILES";

export interface FailedFile {
  readonly project: string;
  readonly file: string;
}

/**
 * Names, as the last lines of a run, the tests that passed only when they were repeated, which are noise of the machine or a race of the
 * product, and then those that failed: the log shows each of them only among thousands.
 */
export class LastLines implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly { readonly message: string }[]): void {
    const parts = modules.flatMap((module): Part[] => [
      module,
      ...module.children.allSuites(),
      ...module.children.allTests(),
    ]);
    const flaky = parts.filter((part) => part.type === "test" && part.diagnostic()?.flaky === true);
    // A file that cannot be loaded and a hook that fails have errors, and no test of their own that failed.
    const failed = parts.filter((part) =>
      part.type === "test" ? part.result().state === "failed" : part.errors().length > 0,
    );
    const list = process.env[FAILED_FILES];
    if (list !== undefined) writeFileSync(list, JSON.stringify(unhandled.length > 0 ? [] : filesOf(failed)));
    print("passed only when repeated", flaky.map(named));
    print("failed", [
      ...failed.map(named),
      ...unhandled.map(({ message }) => ({ name: "an error outside of tests", messages: [message] })),
    ]);
  }
}

function filesOf(parts: readonly Part[]): readonly FailedFile[] {
  const modules = new Set(parts.map((part) => (part.type === "module" ? part : part.module)));
  return [...modules].map(({ project, relativeModuleId }) => ({ project: project.name, file: relativeModuleId }));
}

/** Of one message: what a program printed is in some, and its first line seldom says why it failed. */
const MAX_LINES = 8;

interface Named {
  readonly name: string;
  readonly messages: readonly string[];
}

function named(part: Part): Named {
  const { project, relativeModuleId } = part.type === "module" ? part : part.module;
  const title = part.type === "module" ? "" : ` > ${part.fullName}`;
  const errors = part.type === "test" ? (part.result().errors ?? []) : part.errors();
  return { name: `${project.name} ${relativeModuleId}${title}`, messages: errors.map(({ message }) => message) };
}

function print(what: string, all: readonly Named[]): void {
  if (all.length === 0) return;
  const lines = all.flatMap(({ name, messages }) => [
    `  ${name}`,
    ...messages.flatMap((message) => message.split("\n", MAX_LINES).map((line) => `    ${line}`)),
  ]);
  process.stderr.write(`check: ${what} (${all.length}):\n${lines.join("\n")}\n`);
}
