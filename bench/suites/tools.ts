import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type Docker from "dockerode";
import { pack } from "tar-stream";
import type { Session } from "../../src/run/session/session.ts";
import type { Bench } from "../bench.ts";
import { type Contender, interleaved, wallClock } from "../measure.ts";
import { groupOf } from "../outcome/report.ts";
import { sessionOf } from "./exec.ts";
import type { Suite } from "./suite.ts";

const CONTENT = "x".repeat(4095).concat("\n");
const SIGNAL = new AbortController().signal;

/** The file tools of a worker's sandbox. They work on the host, so they are the same on every driver. */
export const TOOLS: Suite = {
  async measure(bench) {
    await using open = new AsyncDisposableStack();
    const session = await sessionOf(bench.ours[0], open);
    const plain = join(bench.projectDir, "out", "plain.txt");
    const { files } = session;
    const write = [
      wallClock("Node: writeFile, unguarded", () => writeFile(plain, CONTENT)),
      wallClock("Corral: guarded write", () => files.write("/out/ours.txt", CONTENT)),
      toolCall(session, "write_file", { path: "/out/tool.txt", content: CONTENT }),
    ];
    const read = [
      wallClock("Node: readFile, unguarded", () => readFile(plain, "utf8")),
      wallClock("Corral: guarded read", () => files.read("/out/ours.txt")),
      toolCall(session, "read_file", { path: "/out/tool.txt" }),
    ];
    const { execRounds, fileRounds } = bench.sizes;
    // The Engine has fewer rounds, because its calls take much longer. Each list is measured in turns.
    const slow = await interleaved(await archiveCalls(bench, open), execRounds);
    const quick = await interleaved([...write, ...read], fileRounds);
    const half = slow.length / 2;
    return {
      groups: [
        groupOf("write", "Writing a file of 4 KB", "ms", [...slow.slice(0, half), ...quick.slice(0, write.length)]),
        groupOf("read", "Reading a file of 4 KB", "ms", [...slow.slice(half), ...quick.slice(write.length)]),
      ],
    };
  },
};

/** The Engine's own way to a file of a container: put and get. None if Corral cannot use the Engine's cells here. */
async function archiveCalls({ docker, ours }: Bench, open: AsyncDisposableStack): Promise<Contender[]> {
  const engine = ours.find(({ driver }) => driver === "engine");
  if (engine === undefined) return [];
  const { cell } = await (await sessionOf(engine, open)).cell(SIGNAL);
  const container = docker.getContainer(cell.id);
  const archive = await archiveOf("archived.txt", CONTENT);
  return [
    wallClock("Engine API: archive put", () => container.putArchive(archive, { path: "/out" })),
    wallClock("Engine API: archive get", () => archived(container, "/out/archived.txt")),
  ];
}

function toolCall(session: Session, name: string, input: unknown): Contender {
  return wallClock(`Corral: tool ${name}`, async () => {
    const result = await session.runTool(name, input, SIGNAL);
    if (!result.ok) throw new Error(result.message);
  });
}

async function archiveOf(name: string, content: string): Promise<Buffer> {
  const archive = pack();
  archive.entry({ name }, content);
  archive.finalize();
  return Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
}

async function archived(container: Docker.Container, path: string): Promise<void> {
  for await (const _ of await container.getArchive({ path }));
}
