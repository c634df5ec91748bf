import { setTimeout as sleep } from "node:timers/promises";
import { countWaiting } from "../../operations/approvals.ts";
import type { QueueMachines } from "../../operations/queue-machines.ts";
import { type Route, route } from "../http/route.ts";
import type { QueueSize } from "../metrics/metrics.ts";
import type { ServedProject } from "../projects/served-project.ts";
import type { Served } from "./service.ts";

const QUEUE_MS = 3000;

export function metricsRoutes({ stateDir, projects, metrics, sessions, machines: queues }: Served): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/metrics",
        role: "metrics",
        summary: "Read the metrics, in the text format of Prometheus.",
        answers: {
          200: { contentType: "text/plain", description: "Metrics of this service since its start" },
        },
      },
      async () => {
        const waiting: string[] = [];
        for (const { dir, name } of projects.all)
          waiting.push(...Array<string>(await countWaiting(stateDir, dir)).fill(name));
        const questions = () => waiting;
        const sizes = await Promise.all(projects.all.map((project) => queueSize(queues, project)));
        const machines = sizes.filter((size) => size !== null);
        const text = await metrics.text({
          questions,
          sessions: () => sessions.all.map(({ project }) => project),
          machines,
        });
        return { status: 200, contentType: metrics.contentType, pieces: once(text) };
      },
    ),
  ];
}

/** Null: it has no queue, or one that does not answer at once. The other metrics must not wait for it. */
async function queueSize(queues: QueueMachines, { name, dir }: ServedProject): Promise<QueueSize | null> {
  const asked = queues.list([dir]).catch(() => null);
  const machines = await Promise.race([asked, sleep(QUEUE_MS, null, { ref: false })]);
  if (machines === null) return null;
  return { project: name, machines: machines.length, slots: machines.reduce((sum, { slots }) => sum + slots, 0) };
}

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}
