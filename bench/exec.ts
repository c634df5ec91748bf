import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import type { Plan } from "../src/isolation/plan.ts";
import type { Session } from "../src/run/session/session.ts";
import { type Contender, compare, printTimings } from "./measure.ts";

const ROUNDS = 40;

/** A command in a session's cell against the Engine's own exec in the same container. */
export async function benchExec(session: Session, container: Docker.Container, { user }: Plan): Promise<void> {
  const engine: Contender = {
    name: "Engine: exec (create, start, inspect)",
    async once() {
      const Cmd = ["sh", "-c", "true"];
      const exec = await container.exec({
        Cmd,
        User: `${user.uid}:${user.gid}`,
        AttachStdout: true,
        AttachStderr: true,
      });
      const stream = (await exec.start({ hijack: true, stdin: false })) as Duplex;
      await new Promise((resolve) => stream.once("close", resolve).once("end", resolve).resume());
      let { ExitCode } = await exec.inspect();
      while (ExitCode === null) ({ ExitCode } = await exec.inspect());
      if (ExitCode !== 0) throw new Error(`the Engine's exec ended with ${ExitCode}`);
    },
  };
  const ours: Contender = {
    name: "corral: exec in a session",
    async once() {
      const { status } = await session.exec({ command: "true" }, new AbortController().signal);
      if (status !== "succeeded") throw new Error(`the session's exec is ${status}`);
    },
  };
  printTimings("A command in a running cell", await compare([engine, ours], ROUNDS));
}
