import type { Reporter, TestModule } from "vitest/node";

/** What failed and was repeated. */
export interface Retried {
  /** The project, the file and the titles. */
  readonly test: string;
  /** The first line of each failure. */
  readonly failures: readonly string[];
}

/** The tests that passed only when they were repeated: noise of the machine, or a race of the product. */
export function retriedIn(modules: readonly TestModule[]): Retried[] {
  return modules.flatMap((module) =>
    [...module.children.allTests()].flatMap((one) => {
      if (one.diagnostic()?.flaky !== true) return [];
      const failures = (one.result().errors ?? []).map(({ message }) => message.split("\n")[0] ?? "");
      return [{ test: `${module.project.name} ${module.relativeModuleId} > ${one.fullName}`, failures }];
    }),
  );
}

/** Names them at the end of a run, since its log shows each of them only among thousands. */
export class RetriedReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const retried = retriedIn(modules);
    if (retried.length === 0) return;
    const lines = retried.flatMap(({ test, failures }) => [`  ${test}`, ...failures.map((line) => `    ${line}`)]);
    process.stderr.write(`check: passed only when repeated (${retried.length}):\n${lines.join("\n")}\n`);
  }
}
