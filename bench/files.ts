import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type Docker from "dockerode";
import { pack } from "tar-stream";
import type { GuardedFiles } from "../src/files/guarded.ts";
import type { Plan } from "../src/isolation/plan.ts";
import { accessOf } from "../src/sandbox/access.ts";
import type { Mount } from "../src/sandbox/mount.ts";
import { joinVirtual, ROOT } from "../src/sandbox/virtual-path.ts";
import { type Contender, compare, printTimings } from "./measure.ts";

const ROUNDS = 500;
const ARCHIVE_ROUNDS = 20;
const CONTENT = "x".repeat(4095).concat("\n");
const MOUNTS = 10;
const CHECKS = 200_000;

/** 4 KB through the validator, in a directory that a cell sees: against plain calls, and against the Engine's archive calls. */
export async function benchFiles(files: GuardedFiles, container: Docker.Container, plan: Plan): Promise<void> {
  const out = plan.mounts.find((mount) => mount.path === "/out");
  if (out === undefined) throw new Error("the bench project has no /out");
  const plain = join(out.host, "plain.txt");
  const archive = await archiveOf("archived.txt", CONTENT);
  await files.write("/out/ours.txt", CONTENT);

  const write = contender("corral: write", () => files.write("/out/ours.txt", CONTENT));
  const writePlain = contender("fs.promises.writeFile", () => writeFile(plain, CONTENT));
  const put = contender("Engine: archive put", () => container.putArchive(archive, { path: "/out" }));
  printTimings("Writing a file of 4 KB", await compare([writePlain, write], ROUNDS));
  printTimings("Writing it by the Engine", await compare([write, put], ARCHIVE_ROUNDS));

  const read = contender("corral: read", () => files.read("/out/ours.txt"));
  const readPlain = contender("fs.promises.readFile", () => readFile(plain, "utf8"));
  const get = contender("Engine: archive get", () => archived(container, "/out/archived.txt"));
  printTimings("Reading a file of 4 KB", await compare([readPlain, read], ROUNDS));
  printTimings("Reading it by the Engine", await compare([read, get], ARCHIVE_ROUNDS));
}

/** The pure question alone: what a path allows. */
export function benchAccessCheck(): void {
  const mounts = Array.from({ length: MOUNTS }, (_, index): Mount => {
    const name = `zone${index}`;
    return { name, path: joinVirtual(ROOT, name), host: `/host/${name}`, mode: "rw" };
  });
  const paths = mounts.map(({ path }) => joinVirtual(path, "some/deep/folder/file.txt"));
  const msFor = (checks: number): number => {
    const begun = performance.now();
    for (let index = 0; index < checks; index += 1) {
      const path = paths[index % MOUNTS] ?? ROOT;
      if (accessOf({ mounts }, path) !== "write") throw new Error(`${path} cannot be written`);
    }
    return performance.now() - begun;
  };
  // The first checks only warm up.
  msFor(CHECKS / 10);
  const microseconds = (msFor(CHECKS) / CHECKS) * 1000;
  console.log(`\nAn access check with ${MOUNTS} mounts: ${microseconds.toFixed(3)} µs`);
}

function contender(name: string, act: () => Promise<unknown>): Contender {
  return { name, once: async () => void (await act()) };
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
