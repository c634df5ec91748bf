import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Registry } from "prom-client";
import { describe, expect, it } from "vitest";
import { observeProcess, seriesIn } from "../../../src/serve/metrics/metrics.ts";

interface Panel {
  readonly type: string;
  readonly title: string;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

/** Words of the query language that the dashboard uses; every other word in a query is a metric or a label. */
const LANGUAGE = new Set([
  "sum",
  "max",
  "by",
  "rate",
  "increase",
  "histogram_quantile",
  "__rate_interval",
  "project",
  "h",
]);

const dashboard = JSON.parse(await readFile(join(import.meta.dirname, "../../../docs/grafana/corral.json"), "utf8"));
const panels: readonly Panel[] = dashboard.panels;
const queries = panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));
const registry = new Registry();
seriesIn(registry);
observeProcess(registry)[Symbol.dispose]();
const metrics = new Map(
  registry.getMetricsAsArray().flatMap((metric) => {
    const { name, labelNames, type } = metric as unknown as { name: string; labelNames: string[]; type: string };
    const isHistogram = String(type) === "histogram";
    const names = isHistogram ? ["_bucket", "_sum", "_count"].map((suffix) => name + suffix) : [name];
    const labels = new Set([...labelNames, "instance", ...(isHistogram ? ["le"] : [])]);
    return names.map((one) => [one, labels] as const);
  }),
);

describe("the dashboard", () => {
  it("has panels, each with its own id and place", () => {
    expect(dashboard).toMatchObject({ uid: "corral", title: "Corral", schemaVersion: 39 });
    expect(new Set(dashboard.panels.map(({ id }: { id: number }) => id)).size).toBe(panels.length);
    expect(queries.length).toBeGreaterThan(20);
  });

  it.each(queries)(
    "asks in $title for a metric that exists, by labels that it has: $expr",
    ({ expr, legendFormat }) => {
      const bare = expr.replaceAll(/"[^"]*"/g, "").replaceAll(/\b\d+(\.\d+)?h?\b/g, "");
      const words = [...bare.matchAll(/[A-Za-z_]\w*/g)].map(([word]) => word).filter((word) => !LANGUAGE.has(word));
      const named = words.filter((word) => metrics.has(word));
      expect(named).toHaveLength(1);
      const labels = metrics.get(named[0] ?? "") ?? new Set();
      if (expr.includes("project=~")) expect(labels).toContain("project");
      for (const word of words.filter((one) => one !== named[0])) expect([...labels], word).toContain(word);
      for (const [, label = ""] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) expect([...labels], label).toContain(label);
    },
  );

  it("shows every metric of Corral's own", () => {
    const shown = queries.map(({ expr }) => expr).join("\n");
    const own = registry
      .getMetricsAsArray()
      .map(({ name }) => name)
      .filter((name) => /^(corral|gen_ai|http)_/.test(name));
    expect(own.filter((name) => !shown.includes(name))).toEqual([]);
  });
});

it("looks at the process when it is read, and observes nothing after its end", async () => {
  const registry = new Registry();
  const lag = async () =>
    Number(/^nodejs_eventloop_lag_p99_seconds (\S+)/m.exec(await registry.metrics())?.[1] ?? Number.NaN);
  const observed = observeProcess(registry);
  await pause(300);
  const text = await registry.metrics();
  expect(Number(/^process_cpu_seconds_total (\S+)/m.exec(text)?.[1])).toBeGreaterThan(0);
  expect(Number(/^process_start_time_seconds (\S+)/m.exec(text)?.[1])).toBeGreaterThan(Date.now() / 1000 - 3600);
  await pause(300);
  expect(await lag()).toBeGreaterThan(0);
  observed[Symbol.dispose]();
  await lag();
  await pause(300);
  expect(await lag()).toBe(0);
});
