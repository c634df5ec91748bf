import {
  CELL_ALONE,
  CELL_LISTED,
  DIRECT,
  DOCKER_RUN,
  ENGINE_API,
  ENGINE_API_DISABLED,
  FIRST_BYTE,
  FRESH,
  SCRUBBED,
  TUNNEL,
  WARM_RESULT,
} from "./names.ts";
import { type Group, medianOf, type Target } from "./report.ts";

/** The ratios that the project wants to reach on a machine with 2 cores. */
export function targetsOf(groups: readonly Group[]): Target[] {
  const over = (group: string, one: string, other: string): number | null => {
    const [above, below] = [medianOf(groups, group, one), medianOf(groups, group, other)];
    return above === null || below === null ? null : above / below;
  };
  const more = (group: string, one: string, other: string): number | null => {
    const [above, below] = [medianOf(groups, group, one), medianOf(groups, group, other)];
    return above === null || below === null ? null : above - below;
  };
  const [most, thousand] = [medianOf(groups, "growth", "10000 items"), medianOf(groups, "growth", "1000 items")];
  return [
    target("a fresh fleet's rate over the Engine API's best", over("rates", FRESH, ENGINE_API), "at least", 0.95),
    target(
      "a fresh fleet's rate over the Engine API's best with Corral's own configuration",
      over("rates", FRESH, ENGINE_API_DISABLED),
      "at least",
      0.95,
    ),
    target("a fresh fleet's rate over docker run's best", over("rates", FRESH, DOCKER_RUN), "at least", 1.1),
    target("a scrubbed fleet's rate over docker run's best", over("rates", SCRUBBED, DOCKER_RUN), "at least", 30),
    target("a warm claim's first byte over a docker run", over("runs", FIRST_BYTE, DOCKER_RUN), "at most", 0.05),
    target("a warm claim's result over a docker run", over("runs", WARM_RESULT, DOCKER_RUN), "at most", 0.2),
    target(
      "an item's cost among 10,000 over that among 1,000",
      most === null || thousand === null ? null : most / thousand,
      "at most",
      1.1,
    ),
    target("ms that a tunnel adds to a connection with one request", more("connect", TUNNEL, DIRECT), "at most", 1),
    target("ms that a tunnel adds to a request", more("request", TUNNEL, DIRECT), "at most", 1),
    target("a tunnel's throughput over a direct one", over("download", TUNNEL, DIRECT), "at least", 0.7),
    target("ms that an allow list adds to a start", more("start", CELL_LISTED, CELL_ALONE), "at most", 60),
  ];
}

export function isMet({ measured, bound, wanted }: Target): boolean | null {
  if (measured === null) return null;
  return bound === "at least" ? measured >= wanted : measured <= wanted;
}

function target(what: string, measured: number | null, bound: Target["bound"], wanted: number): Target {
  return { what, measured, bound, wanted };
}
