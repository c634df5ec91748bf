import { countWaiting } from "../../operations/approvals.ts";
import { type Route, route } from "../http/route.ts";
import type { Served } from "./service.ts";

export function metricsRoutes({ stateDir, projects, metrics, sessions }: Served): Route[] {
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
        const text = await metrics.text({ questions, sessions: () => sessions.all.map(({ project }) => project) });
        return { status: 200, contentType: metrics.contentType, pieces: once(text) };
      },
    ),
  ];
}

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}
