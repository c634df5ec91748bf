import { type BenchReport, groupOf } from "../../bench/outcome/report.ts";
import { targetsOf } from "../../bench/outcome/targets.ts";

/** A report of two groups, as a run of the bench makes one. */
export function smallReport(): BenchReport {
  const groups = [
    groupOf("runs", "One run", "ms", [
      { name: "docker run", values: [200, 210, 400] },
      { name: "bwrap", values: [8] },
      { name: "Corral on runc: warm claim to first byte", values: [5, 4, 6] },
      { name: "Corral on runc: warm claim to result", values: [50, 60, 40] },
    ]),
    groupOf("rates", "Many <items>", "items/s", [
      { name: "docker run, 2 at once", values: [10, 12, 8] },
      { name: "Corral on the Engine: fleet, scrubbed cells", values: [1200, 1500, 1100] },
    ]),
  ];
  return {
    version: 2,
    level: "quick",
    command: "npm run bench -- --quick",
    startedAt: "2026-01-02T03:04:05.000Z",
    durationMs: 61_000,
    machine: {
      cores: 2,
      memoryBytes: 8 * 1024 ** 3,
      processor: "A & B",
      kernel: "6.1.0",
      node: "24.0.0",
      engine: "20.10.24",
      runc: "1.1.5",
      loadBefore: 0.25,
      loadAfter: 3,
    },
    groups,
    targets: targetsOf(groups),
    notes: ["a peer was not measured: it is not installed."],
  };
}
