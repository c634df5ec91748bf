import { setTimeout as pause } from "node:timers/promises";
import { Registry } from "prom-client";
import { expect, it } from "vitest";
import { observeProcess } from "../../../src/serve/metrics/metrics.ts";

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
