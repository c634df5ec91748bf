import { percentile } from "./percentile.ts";
import { type BenchReport, type Group, nameAtAnyConcurrency, type Row, type Target } from "./report.ts";

/** The groups of one or several passes as one: each row is the one whose p50 is the median. */
export function medianGroups(passes: readonly (readonly Group[])[]): Group[] {
  const [first = []] = passes;
  return first.map((group) => {
    const others = passes.flatMap((groups) => groups.filter(({ name }) => name === group.name));
    const rows = group.rows.map((row) => medianRow(row, others));
    const [base] = rows;
    return { ...group, rows: rows.map((row) => ({ ...row, ratio: row.ratio && base ? row.p50 / base.p50 : null })) };
  });
}

/** The median of what each pass measured by itself: the ratio of two medians would mix minutes of the machine. */
export function medianTargets(passes: readonly (readonly Target[])[]): Target[] {
  const [first = []] = passes;
  return first.map((target) => {
    const values = passes
      .flatMap((targets) => targets.filter(({ what }) => what === target.what))
      .flatMap(({ measured }) => (measured === null ? [] : [measured]));
    return values.length === 0 ? target : { ...target, measured: percentile(values, 0.5), passes: values };
  });
}

/** Reports of different suites as one, in the order in which they were made. Of a suite that several have, the last one counts. */
export function joined(reports: readonly [BenchReport, ...BenchReport[]]): BenchReport {
  return reports.reduce(continued);
}

function continued(first: BenchReport, next: BenchReport): BenchReport {
  return {
    ...first,
    command: `${first.command}; ${next.command}`,
    durationMs: first.durationMs + next.durationMs,
    machine: { ...first.machine, kernel: kernelsOf([first, next]), loadAfter: next.machine.loadAfter },
    groups: [...first.groups.filter((old) => !next.groups.some(({ name }) => name === old.name)), ...next.groups],
    targets: [
      ...first.targets.map((old) => {
        const its = next.targets.find(({ what }) => what === old.what);
        return its?.measured == null ? old : its;
      }),
      // An older report does not know of newer targets.
      ...next.targets.filter((its) => !first.targets.some(({ what }) => what === its.what)),
    ],
    notes: [...new Set([...first.notes, ...next.notes])],
  };
}

/** A virtual machine may have got another kernel between two of the reports. */
function kernelsOf(reports: readonly BenchReport[]): string {
  return [...new Set(reports.flatMap(({ machine }) => machine.kernel.split(" and ")))].join(" and ");
}

function medianRow(row: Row, groups: readonly Group[]): Row {
  const name = nameAtAnyConcurrency(row.name);
  const all = groups.flatMap(({ rows }) => rows.filter((other) => nameAtAnyConcurrency(other.name) === name));
  const p50 = percentile(
    all.map((other) => other.p50),
    0.5,
  );
  return all.find((other) => other.p50 === p50) ?? row;
}
