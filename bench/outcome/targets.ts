import {
  amongItems,
  CELL_ALONE,
  CELL_LISTED,
  COLD_COMMAND_LINE,
  COLD_LIBRARY,
  DIRECT,
  DOCKER_RUN,
  type DriverName,
  ENGINE_EXEC,
  FIRST_BYTE,
  FRESH,
  oursOn,
  POSTGRES,
  RUNC_RUN,
  SANDBOX_RUNTIME,
  SCRUBBED,
  SESSION_EXEC,
  SQLITE,
  sideBySide,
  TUNNEL,
  WARM_RESULT,
} from "./names.ts";
import { type Group, medianOf, type Target } from "./report.ts";

/** What the project wants to reach on a quiet machine with 2 cores, with the quicker driver that can be used there. */
export function targetsOf(groups: readonly Group[], driver: DriverName): Target[] {
  const ours = (what: string): string => `${oursOn(driver)}: ${what}`;
  const compared = (
    group: string,
    one: string,
    other: string,
    how: (a: number, b: number) => number,
  ): number | null => {
    const [a, b] = [medianOf(groups, group, one), medianOf(groups, group, other)];
    return a === null || b === null ? null : how(a, b);
  };
  type Compared = readonly [what: string, group: string, row: string, than: string, wanted: number];
  const over = (bound: Target["bound"], [what, group, row, than, wanted]: Compared): Target => {
    return { what, measured: compared(group, row, than, (a, b) => a / b), bound, wanted };
  };
  const more = ([what, group, row, than, wanted]: Compared): Target => {
    return { what, measured: compared(group, row, than, (a, b) => a - b), bound: "at most", wanted };
  };
  return [
    over("at most", ["cold run, library / docker run", "runs", ours(COLD_LIBRARY), DOCKER_RUN, 0.25]),
    over("at most", ["cold run, library / sandbox-runtime", "runs", ours(COLD_LIBRARY), SANDBOX_RUNTIME, 1.2]),
    over("at most", ["cold run, command line / docker run", "runs", ours(COLD_COMMAND_LINE), DOCKER_RUN, 0.9]),
    over("at most", ["warm claim to first byte / docker run", "runs", ours(FIRST_BYTE), DOCKER_RUN, 0.05]),
    over("at most", ["warm claim to result / docker run", "runs", ours(WARM_RESULT), DOCKER_RUN, 0.08]),
    over("at most", ["exec in a session / the Engine's exec", "exec", ours(SESSION_EXEC), ENGINE_EXEC, 0.5]),
    over("at least", ["fresh fleet / docker run at its best", "rates", ours(FRESH), DOCKER_RUN, 4]),
    over("at least", ["fresh fleet / bare runc run at its best", "rates", ours(FRESH), RUNC_RUN, 0.7]),
    over("at least", ["scrubbed fleet / docker run at its best", "rates", ours(SCRUBBED), DOCKER_RUN, 60]),
    over("at most", [
      "an item among 10,000 / among 1,000",
      "growth",
      ours(amongItems(10_000)),
      ours(amongItems(1000)),
      1.1,
    ]),
    over("at least", ["a tunnel's throughput / a direct one", "download", TUNNEL, DIRECT, 0.7]),
    over("at most", ["an item with a fresh cell, PostgreSQL / SQLite", "machines-fresh", SQLITE, POSTGRES, 1.05]),
    over("at most", ["a scrubbed item, PostgreSQL / SQLite", "machines-scrubbed", SQLITE, POSTGRES, 1.15]),
    {
      what: "empty items a second in PostgreSQL",
      measured: medianOf(groups, "queue", sideBySide(POSTGRES, 64)),
      bound: "at least",
      wanted: 3000,
    },
    ...[SQLITE, POSTGRES].map((store) =>
      over("at most", [
        `an empty item among 100,000 / among 1,000, ${store}`,
        "queue-growth",
        `${store}: ${amongItems(100_000)}`,
        `${store}: ${amongItems(1000)}`,
        1.3,
      ]),
    ),
    more(["ms that a tunnel adds to a connection with one request", "connect", TUNNEL, DIRECT, 1]),
    more(["ms that a tunnel adds to a request", "request", TUNNEL, DIRECT, 1]),
    more(["ms that an allow list adds to a start", "start", CELL_LISTED, CELL_ALONE, 60]),
  ];
}

export function isMet({ measured, bound, wanted }: Target): boolean | null {
  if (measured === null) return null;
  return bound === "at least" ? measured >= wanted : measured <= wanted;
}
