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
  EXEC_BY_HTTP,
  FIRST_BYTE,
  FRESH,
  GET_BY_HTTP,
  onDriver,
  oursOn,
  POSTGRES,
  PUT_BY_HTTP,
  RUNC_RUN,
  SANDBOX_RUNTIME,
  SCRUBBED,
  SESSION_EXEC,
  SQLITE,
  sideBySide,
  TAR,
  TUNNEL,
  WARM_RESULT,
} from "./names.ts";
import { type Group, medianOf, type Target } from "./report.ts";

/**
 * What the project wants to reach on a quiet machine with 2 cores: of runs on both drivers, else on the one that is the default of that work
 * where both can be used.
 */
export function targetsOf(groups: readonly Group[]): Target[] {
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
  type Ours = readonly [what: string, driver: DriverName, group: string, row: string, than: string, wanted: number];
  const ours = (bound: Target["bound"], [what, driver, group, row, than, wanted]: Ours, shown = than): Target =>
    over(bound, [`${what}, ${onDriver(driver)} / ${shown}`, group, `${oursOn(driver)}: ${row}`, than, wanted]);
  const more = ([what, group, row, than, wanted]: Compared): Target => {
    return { what, measured: compared(group, row, than, (a, b) => a - b), bound: "at most", wanted };
  };
  const [byHttp, here] = [EXEC_BY_HTTP, SESSION_EXEC].map((row) => `${oursOn("engine")}: ${row}`) as [string, string];
  return [
    ours("at most", ["cold run, library", "engine", "runs", COLD_LIBRARY, DOCKER_RUN, 0.85]),
    ours("at most", ["cold run, library", "runc", "runs", COLD_LIBRARY, DOCKER_RUN, 0.25]),
    ours("at most", ["cold run, library", "runc", "runs", COLD_LIBRARY, SANDBOX_RUNTIME, 1.2]),
    ours("at most", ["cold run, command line", "engine", "runs", COLD_COMMAND_LINE, DOCKER_RUN, 1.15]),
    ours("at most", ["cold run, command line", "runc", "runs", COLD_COMMAND_LINE, DOCKER_RUN, 0.9]),
    ours("at most", ["warm claim to first byte", "runc", "runs", FIRST_BYTE, DOCKER_RUN, 0.05]),
    ours("at most", ["warm claim to result", "runc", "runs", WARM_RESULT, DOCKER_RUN, 0.08]),
    ours("at most", ["exec in a session", "engine", "exec", SESSION_EXEC, ENGINE_EXEC, 0.5], "the Engine's exec"),
    ours("at least", ["fresh fleet", "runc", "rates", FRESH, DOCKER_RUN, 4], "docker run at its best"),
    ours("at least", ["fresh fleet", "crun", "rates", FRESH, DOCKER_RUN, 8], "docker run at its best"),
    ours("at least", ["fresh fleet", "runc", "rates", FRESH, RUNC_RUN, 0.7], "bare runc run at its best"),
    ours("at least", ["scrubbed fleet", "engine", "rates", SCRUBBED, DOCKER_RUN, 60], "docker run at its best"),
    ours("at least", ["put of a session", "engine", "transfer", PUT_BY_HTTP, TAR, 0.5]),
    ours("at least", ["get of a session", "engine", "transfer", GET_BY_HTTP, TAR, 0.5]),
    more(["ms that HTTP adds to a command in a session", "service-exec", byHttp, here, 15]),
    over("at most", [
      `an item among 10,000, ${onDriver("engine")} / among 1,000`,
      "growth",
      `${oursOn("engine")}: ${amongItems(10_000)}`,
      `${oursOn("engine")}: ${amongItems(1000)}`,
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
