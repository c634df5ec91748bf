import type { FleetJob } from "../../../src/fleet/items/item-job.ts";
import { SchemaChecks } from "../../../src/run/model/job.ts";
import type { KeptChangesets } from "../../../src/run/model/result.ts";

/** Of a thing that the simulation has only in part: whatever else is asked of it is a fault of the simulation, and says so. */
function only<T extends object>(name: string, parts: { readonly [K in keyof T]?: T[K] | undefined } = {}): T {
  return new Proxy(parts as T, {
    get(of, key) {
      if (!(key in of)) throw new Error(`the simulation has no ${name}.${String(key)}`);
      return Reflect.get(of, key);
    },
  });
}

/** What all items of a simulated fleet share. A port that Corral gets must be named here: the type checker asks for it. */
export function simulatedJob(now: () => number, changesets: KeptChangesets): FleetJob {
  const sandbox = only<FleetJob["sandbox"]>("sandbox", { limits: only("limits", { timeoutMs: 60_000 }), mounts: [] });
  const delegation = { maxDepth: 1, maxCalls: 1, maxParallel: 1 };
  return {
    reads: [],
    worker: only<FleetJob["worker"]>("worker", { name: "w", output: "json", outputSchema: undefined }),
    caller: sandbox,
    sandbox,
    env: {
      now,
      changesets,
      schemas: new SchemaChecks(),
      project: only<FleetJob["env"]["project"]>("project", { delegation }),
      driver: only<FleetJob["env"]["driver"]>("driver", { list: async () => [] }),
      itemCells: only("itemCells"),
      policyNamed: async () => only("policy"),
      images: only("images"),
      projectDir: "",
      gate: async () => "",
      ownerDir: "",
      refusedSources: only<FleetJob["env"]["refusedSources"]>("refusedSources", { places: [] }),
      overlays: false,
      secretInside: only("secretInside"),
      resolveName: async () => [],
      secretOf: only("secretOf"),
      trustedRoots: async () => [],
      approver: only("approver"),
      nobodyAsked: { decide: () => only("nobodyAsked") },
      agreedBy: () => only("agreedBy"),
      grants: only("grants"),
      audit: only("audit"),
      emit: () => {},
      masking: only("masking"),
      history: only("history"),
      models: only("models"),
      transcripts: only("transcripts"),
    },
  };
}
