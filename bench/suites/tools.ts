import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import { pack } from "tar-stream";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { openSession } from "../../src/run/open-session.ts";
import type { Session } from "../../src/run/session/session.ts";
import type { Bench } from "../bench.ts";
import { dockerExec, dockerRun } from "../contenders/docker-run.ts";
import { type Contender, interleaved, wallClock } from "../measure.ts";
import { type Group, groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

const CONTENT = "x".repeat(4095).concat("\n");
const SIGNAL = new AbortController().signal;

/** Tools in a worker's sandbox: file tools on the host, and commands in a running cell. */
export const TOOLS: Suite = {
  async measure(bench) {
    const opened = await openSession({ worker: bench.worker("tools"), signal: SIGNAL }, bench.corral.environment);
    if (!opened.ok) throw new Error(opened.violations.map(({ message }) => message).join("\n"));
    await using _ = opened;
    const { session } = opened;
    const { cell, plan } = await session.cell(SIGNAL);
    const container = bench.docker.getContainer(cell.id);
    const groups = [await execs(bench, session, container, plan), ...(await files(bench, session, container))];
    return { groups };
  },
};

async function execs(bench: Bench, session: Session, container: Docker.Container, plan: Plan): Promise<Group> {
  const command = ["sh", "-c", "true"];
  const contenders = [
    ...(bench.hasDocker
      ? [
          wallClock("docker run", () => dockerRun(bench.plan, { command, binds: [] })),
          wallClock("docker exec", () => dockerExec(container.id, plan, command)),
        ]
      : []),
    wallClock("Engine API: exec", () => engineExec(container, plan, command)),
    wallClock("Corral: exec in a session", async () => {
      const { status } = await session.exec({ command: "true" }, SIGNAL);
      if (status !== "succeeded") throw new Error(`the session's exec is ${status}`);
    }),
  ];
  return groupOf("exec", "A command in a running cell", "ms", await interleaved(contenders, bench.sizes.execRounds));
}

async function engineExec(container: Docker.Container, { user }: Plan, Cmd: string[]): Promise<void> {
  const exec = await container.exec({ Cmd, User: `${user.uid}:${user.gid}`, AttachStdout: true, AttachStderr: true });
  const stream = (await exec.start({ hijack: true, stdin: false })) as Duplex;
  await new Promise((resolve) => stream.once("close", resolve).once("end", resolve).resume());
  let { ExitCode } = await exec.inspect();
  while (ExitCode === null) ({ ExitCode } = await exec.inspect());
  if (ExitCode !== 0) throw new Error(`the Engine's exec ended with ${ExitCode}`);
}

async function files(bench: Bench, session: Session, container: Docker.Container): Promise<Group[]> {
  const { files } = session;
  const plain = join(bench.projectDir, "out", "plain.txt");
  const archive = await archiveOf("archived.txt", CONTENT);
  const put = wallClock("Engine API: archive put", () => container.putArchive(archive, { path: "/out" }));
  const get = wallClock("Engine API: archive get", () => archived(container, "/out/archived.txt"));
  const write = wallClock("Corral: guarded write", () => files.write("/out/ours.txt", CONTENT));
  const read = wallClock("Corral: guarded read", () => files.read("/out/ours.txt"));
  const writeTool = toolCall(session, "write_file", { path: "/out/tool.txt", content: CONTENT });
  const readTool = toolCall(session, "read_file", { path: "/out/tool.txt" });
  const writePlain = wallClock("Node: writeFile, unguarded", () => writeFile(plain, CONTENT));
  const readPlain = wallClock("Node: readFile, unguarded", () => readFile(plain, "utf8"));
  const { execRounds, fileRounds } = bench.sizes;
  // The Engine has fewer rounds, because its calls take much longer. Each list is measured in turns.
  const slow = await interleaved([put, get], execRounds);
  const quick = await interleaved([writePlain, write, writeTool, readPlain, read, readTool], fileRounds);
  const [slowWrite, slowRead] = [slow.slice(0, 1), slow.slice(1)];
  return [
    groupOf("write", "Writing a file of 4 KB", "ms", [...slowWrite, ...quick.slice(0, 3)]),
    groupOf("read", "Reading a file of 4 KB", "ms", [...slowRead, ...quick.slice(3)]),
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
