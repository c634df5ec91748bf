import { mount } from "../../sandbox/sandboxes.ts";
import { type Behaviour, driverContract } from "../driver.contract.ts";
import { openEngine } from "./engine.ts";

const SCRIPTS: Readonly<Record<Behaviour, string>> = {
  "echoes-its-input": "exec cat",
  "prints-on-both": "echo to out; echo to err >&2",
  "counts-up": "seq 200",
  "exits-with-3": "exit 3",
  "dies-of-segv": "kill -SEGV $$",
  waits: "echo ready; exec sleep 60",
  "ignores-term": "trap '' TERM; echo ready; while :; do sleep 60; done",
};

driverContract("docker", async () => {
  const engine = await openEngine();
  const data = await engine.folder("data");
  const pre_approved = { write: "pre_approved", delete: "pre_approved" } as const;
  const mounts = [mount("/data", "rw", { host: data, approval: pre_approved })];
  return {
    maker: engine.maker,
    driverOf: engine.driverOf,
    plan: (behaviour, run) => {
      const command = behaviour === "no such command" ? [behaviour] : ["sh", "-c", SCRIPTS[behaviour]];
      return engine.plan({ command, mounts, ...(run === undefined ? {} : { run }) });
    },
    traces: engine.traces,
    [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
  };
});
