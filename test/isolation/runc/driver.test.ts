import { mount } from "../../sandbox/sandboxes.ts";
import { type Behaviour, driverContract } from "../driver.contract.ts";
import { openRunc } from "./runc.ts";

const SCRIPTS: Readonly<Record<Behaviour, string>> = {
  "echoes-its-input": "exec cat",
  "prints-on-both": "echo to out; echo to err >&2",
  "counts-up": "seq 200",
  "exits-with-3": "exit 3",
  "dies-of-segv": "kill -SEGV $$",
  waits: "echo ready; exec sleep 60",
  "ignores-term": "trap '' TERM; echo ready; while :; do sleep 60; done",
};

driverContract("runc", async () => {
  const runc = await openRunc();
  const data = await runc.folder("data");
  const pre_approved = { write: "pre_approved", delete: "pre_approved" } as const;
  const mounts = [mount("/data", "rw", { host: data, approval: pre_approved })];
  return {
    maker: runc.maker,
    driverOf: runc.driverOf,
    plan: (behaviour, run) => {
      const command = behaviour === "no such command" ? [behaviour] : ["sh", "-c", SCRIPTS[behaviour]];
      return runc.plan({ command, mounts, ...(run === undefined ? {} : { run }) });
    },
    traces: runc.traces,
    [Symbol.asyncDispose]: () => runc[Symbol.asyncDispose](),
  };
});
