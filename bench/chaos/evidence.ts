import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Coordinator } from "./coordinator.ts";
import type { Machine } from "./machine.ts";

/** What is counted; none of it is a fault by itself. */
export interface Counts {
  readonly items: number;
  readonly attempts: number;
  /** Answers of attempts that no longer counted: refused, and told by the machine. */
  readonly late: number;
  /** Attempts that a machine ended because its lease was over. */
  readonly ended: number;
  readonly givenBack: number;
  readonly leasesLost: number;
  readonly joined: number;
  /** By place. */
  readonly delivered: Readonly<Record<string, number>>;
}

export interface Evidence {
  readonly counts: Counts;
  /** Everything that is wrong. */
  readonly faults: readonly string[];
}

type Line = Record<string, unknown>;

interface Result {
  readonly key: string;
  readonly status: string;
  readonly run: string;
  readonly attempt: number;
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** Compares results, files, the audit trail and what machines told. `results`: of the store, `audit`: of applied changes. */
export function evidenceOf(
  items: number,
  facts: { coordinator: Coordinator; machines: readonly Machine[]; results: readonly Line[]; audit: readonly Line[] },
): Evidence {
  const { coordinator, machines, audit } = facts;
  const results = facts.results as unknown as Result[];
  const faults: string[] = [];
  const byKey = Map.groupBy(results, ({ key }) => key);
  const written = effectsIn(join(coordinator.processes.projectDir, "out"));
  const applied = Map.groupBy(
    audit.flatMap(({ run, changes }) =>
      (changes as { path: string; outcome: string }[]).map((one) => ({ run, ...one })),
    ),
    ({ path }) => path,
  );
  const told = Map.groupBy(
    coordinator.processes.told().filter(({ key }) => key !== undefined),
    ({ key }) => key as string,
  );
  for (let n = 0; n < items; n += 1) {
    const key = String(n);
    const own = byKey.get(key) ?? [];
    const [result] = own;
    if (own.length !== 1 || result === undefined) {
      faults.push(`item ${key} has ${own.length} results`);
      continue;
    }
    if (result.status !== "succeeded")
      faults.push(`item ${key} is ${result.status}: ${result.error?.code} ${result.error?.message}`);
    const effects = written.get(key) ?? [];
    if (effects.length !== 1) faults.push(`item ${key} has ${effects.length} effects: ${JSON.stringify(effects)}`);
    for (const { run, text } of effects) {
      if (run !== result.run) faults.push(`item ${key}: run ${run} took effect, and run ${result.run} is recorded`);
      if (text !== `${run}\n`) faults.push(`item ${key}: its effect is ${JSON.stringify(text)}`);
    }
    const path = `/out/${n % 100}/${key}-${result.run}`;
    const times = applied.get(path)?.length ?? 0;
    // A coordinator that is killed between the effect and its line in the trail does not write it twice, but may not write it.
    if (times > 1) faults.push(`item ${key}: its effect is ${times} times in the audit trail`);
    const tellings = told.get(key)?.length ?? 0;
    if (tellings > 1) faults.push(`item ${key}: its result was told ${tellings} times`);
  }
  for (const key of byKey.keys()) if (!(Number(key) < items)) faults.push(`there is a result of ${key}`);
  for (const [path, times] of applied)
    if (times.some(({ outcome }) => outcome !== "applied")) faults.push(`${path} is ${times[0]?.outcome} in the trail`);

  const events = machines.flatMap((machine) => machine.processes.told());
  const of = (type: string): Line[] => events.filter((event) => event.type === type);
  const recorded = new Map(results.map(({ key, attempt }) => [key, attempt]));
  const late = of("late");
  for (const { key, attempt, reason } of late) {
    // If the lease had ended, the answer to what was delivered before may have been lost.
    const isFenced = String(reason).includes("no longer counts");
    if (isFenced && recorded.get(key as string) === attempt)
      faults.push(`item ${key}: attempt ${attempt} was refused as late, and is recorded`);
  }
  const givenBack = of("given_back");
  return {
    faults,
    counts: {
      items: results.length,
      attempts: results.reduce((sum, { attempt }) => sum + attempt, 0),
      late: late.length,
      ended: givenBack.filter(({ why }) => String(why).includes("lease")).length,
      givenBack: givenBack.length,
      leasesLost: of("lost").length,
      joined: of("joined").length,
      delivered: Object.fromEntries(
        machines.map(({ name, processes }) => [
          name,
          processes.told().filter(({ type }) => type === "delivered").length,
        ]),
      ),
    },
  };
}

/** By item: which runs wrote, and what is in their files. */
function effectsIn(out: string): Map<string, { run: string; text: string }[]> {
  const files = readdirSync(out).flatMap((folder) => readdirSync(join(out, folder)).map((name) => ({ folder, name })));
  return Map.groupBy(
    files.map(({ folder, name }) => {
      const [key = "", run = ""] = name.split("-");
      return { key, run, text: readFileSync(join(out, folder, name), "utf8") };
    }),
    ({ key }) => key,
  );
}
