import { mkdirSync, watch } from "node:fs";
import type Docker from "dockerode";
import { DRAFT_PREFIX, runcPaths } from "../../src/isolation/runc/model/layout.ts";
import type { ProjectFixture } from "./project-fixture.ts";

/** What this machine itself shows of the cells of a project that are made from now on, by whichever driver. */
export function watchCells({ stateDir, docker }: ProjectFixture) {
  const since = Date.now();
  const { cells } = runcPaths(stateDir);
  mkdirSync(cells, { recursive: true, mode: 0o700 });
  const ofRunc = new Set<string>();
  const watcher = watch(cells, (_, name) => {
    if (name !== null && !name.startsWith(DRAFT_PREFIX)) ofRunc.add(name);
  });
  return {
    /** The runs of one tree that had a cell. */
    async runs(root: string): Promise<string[]> {
      const ofEngine = await runsWithContainers(docker, root, since);
      // What the kernel has noticed is delivered in the next turns of the loop.
      await new Promise((resolve) => setTimeout(resolve, 20));
      return [...ofEngine, ...ofRunc];
    },
    [Symbol.dispose]: () => watcher.close(),
  };
}

/** What the Engine remembers. */
async function runsWithContainers(docker: Docker, root: string, sinceMs: number): Promise<string[]> {
  const filters = { type: ["container"], event: ["create"], label: [`dev.corral.root=${root}`] };
  // The client's types know neither fractions of seconds nor that the answer is a stream.
  const options = {
    since: seconds(sinceMs),
    until: seconds(Date.now()),
    filters,
  } as unknown as Docker.GetEventsOptions;
  const stream = (await docker.getEvents(options)) as unknown as AsyncIterable<Buffer>;
  const text = Buffer.concat(await Array.fromAsync(stream)).toString("utf8");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => (JSON.parse(line) as { Actor: { Attributes: Record<string, string> } }).Actor.Attributes)
    .map((labels) => labels["dev.corral.run"] ?? "");
}

/** In the Engine's fractional form; as of a whole second it would wait for that second to pass. */
function seconds(ms: number): string {
  return (ms / 1000).toFixed(3);
}
