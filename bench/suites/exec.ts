import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { openSession } from "../../src/run/open-session.ts";
import type { Session } from "../../src/run/session/session.ts";
import { dockerExec, dockerRun } from "../contenders/docker-run.ts";
import type { Ours } from "../contenders/ours.ts";
import { type Contender, interleaved, wallClock } from "../measure.ts";
import { DOCKER_EXEC, DOCKER_RUN, ENGINE_EXEC, SESSION_EXEC } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

const COMMAND = ["sh", "-c", "true"];
const SIGNAL = new AbortController().signal;

/** A command in a container that runs already. */
export const EXEC: Suite = {
  async measure(bench) {
    await using open = new AsyncDisposableStack();
    const contenders: Contender[] = [];
    const { hasDocker, plan, peers } = bench;
    if (hasDocker) contenders.push(wallClock(DOCKER_RUN, () => dockerRun(plan, { command: COMMAND, binds: [] })));
    const ours: Contender[] = [];
    for (const its of bench.ours) {
      const session = await sessionOf(its, open);
      ours.push(wallClock(its.row(SESSION_EXEC), () => sessionExec(session)));
      if (its.driver === "engine") contenders.push(...(await ofTheEngine(bench, session)));
    }
    for (const { inside } of peers.present) {
      if (inside === undefined) continue;
      const { name, exec } = open.use(await inside(plan));
      contenders.push(wallClock(name, () => exec(COMMAND)));
    }
    const series = await interleaved([...contenders, ...ours], bench.sizes.execRounds);
    return { groups: [groupOf("exec", "A command in a running cell", "ms", series)] };
  },
};

/** A session of the worker with file tools and commands. It ends with `open`. */
export async function sessionOf({ corral, worker }: Ours, open: AsyncDisposableStack): Promise<Session> {
  const opened = await openSession({ worker: worker("tools"), signal: SIGNAL }, corral.environment);
  if (!opened.ok) throw new Error(opened.violations.map(({ message }) => message).join("\n"));
  return open.use(opened).session;
}

export async function sessionExec(session: Session): Promise<void> {
  const { status } = await session.exec({ command: "true" }, SIGNAL);
  if (status !== "succeeded") throw new Error(`the session's exec is ${status}`);
}

/** In the cell of a session, which is a container of the Engine. */
async function ofTheEngine(
  { docker, hasDocker }: { readonly docker: Docker; readonly hasDocker: boolean },
  session: Session,
): Promise<Contender[]> {
  const { cell, plan } = await session.cell(SIGNAL);
  const container = docker.getContainer(cell.id);
  const command = wallClock(DOCKER_EXEC, () => dockerExec(container.id, plan, COMMAND));
  return [...(hasDocker ? [command] : []), wallClock(ENGINE_EXEC, () => engineExec(container, plan, COMMAND))];
}

async function engineExec(container: Docker.Container, { user }: Plan, Cmd: string[]): Promise<void> {
  const exec = await container.exec({ Cmd, User: `${user.uid}:${user.gid}`, AttachStdout: true, AttachStderr: true });
  const stream = (await exec.start({ hijack: true, stdin: false })) as Duplex;
  await new Promise((resolve) => stream.once("close", resolve).once("end", resolve).resume());
  let { ExitCode } = await exec.inspect();
  while (ExitCode === null) ({ ExitCode } = await exec.inspect());
  if (ExitCode !== 0) throw new Error(`the Engine's exec ended with ${ExitCode}`);
}
