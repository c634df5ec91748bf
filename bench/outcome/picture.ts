import { type Bar, chartOf, type Panel } from "./chart.ts";
import { loadText, machineText } from "./machine-text.ts";
import {
  BUBBLEWRAP,
  COLD_COMMAND_LINE,
  COLD_LIBRARY,
  DOCKER_EXEC,
  DOCKER_RUN,
  DRIVER_NAMES,
  ENGINE_API,
  ENGINE_API_DISABLED,
  ENGINE_EXEC,
  FRESH,
  onDriver,
  oursOn,
  RUNC_EXEC,
  RUNC_RUN,
  SANDBOX_RUNTIME,
  SCRUBBED,
  SESSION_EXEC,
  TESTCONTAINERS,
  WARM_RESULT,
} from "./names.ts";
import { type BenchReport, medianOf, moreIsBetter } from "./report.ts";

/** Contenders whose isolation is another one; a line of the caption says how. */
const WEAKER: readonly string[] = [BUBBLEWRAP, SANDBOX_RUNTIME];
const ALONE = [DOCKER_RUN, TESTCONTAINERS, ENGINE_API, ENGINE_API_DISABLED, RUNC_RUN, SANDBOX_RUNTIME, BUBBLEWRAP];

interface Chosen {
  readonly group: string;
  readonly title: string;
  readonly others: readonly string[];
  /** Rows of Corral, without how they begin: of each driver that was measured. */
  readonly ours: readonly string[];
}

const CHOSEN: readonly Chosen[] = [
  {
    group: "runs",
    title: "One command in a new container",
    others: ALONE,
    ours: [COLD_COMMAND_LINE, COLD_LIBRARY, WARM_RESULT],
  },
  {
    group: "exec",
    title: "One more command in a running container",
    others: [DOCKER_EXEC, ENGINE_EXEC, RUNC_EXEC],
    ours: [SESSION_EXEC],
  },
  {
    group: "rates",
    title: "Many items, each in a new container, at the best concurrency",
    others: ALONE,
    ours: [FRESH],
  },
  {
    group: "rates",
    title: "Many items, containers cleaned and verified between them",
    others: [DOCKER_RUN],
    ours: [SCRUBBED],
  },
];

/** The rows that say most, as one picture for a page: forty bars are too many to read. */
export function pictureOf(report: BenchReport): string {
  const panels = CHOSEN.map((chosen) => panelOf(report, chosen)).filter(({ bars }) => bars.length > 0);
  const isWeaker = panels.some(({ bars }) => bars.some(({ kind }) => kind === "weaker"));
  return chartOf(panels, [
    ...(isWeaker
      ? [
          "* no limit of memory, processors or processes; bwrap has no seccomp filter, sandbox-runtime shows the host's files",
        ]
      : []),
    `Corral: the bars with a driver. Each of its cells is verified, and each run is in the audit trail. Medians. Made on ${report.startedAt.slice(0, 10)} by`,
    report.command,
    machineText(report.machine),
    loadText(report.machine),
  ]);
}

function panelOf({ groups }: BenchReport, { group, title, others, ours }: Chosen): Panel {
  const unit = groups.find(({ name }) => name === group)?.unit ?? "ms";
  const bar = (name: string, row: string, kind: Bar["kind"]): Bar[] => {
    const value = medianOf(groups, group, row);
    return value === null ? [] : [{ name, value, kind }];
  };
  const bars = [
    ...others.flatMap((name) => (WEAKER.includes(name) ? bar(`${name} *`, name, "weaker") : bar(name, name, "other"))),
    ...ours.flatMap((name) =>
      DRIVER_NAMES.flatMap((driver) => bar(`${name}, ${onDriver(driver)}`, `${oursOn(driver)}: ${name}`, "ours")),
    ),
  ];
  return { title, unit: unit === "items/s" ? "items a second" : unit, moreIsBetter: moreIsBetter(unit), bars };
}
