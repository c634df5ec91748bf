import { present } from "../../src/text/present.ts";
import { mount } from "../sandbox/sandboxes.ts";
import { type Behaviour, type DriverHarness, driverContract } from "./driver.contract.ts";
import type { Engine } from "./engine/engine.ts";

const SCRIPTS: Readonly<Record<Behaviour, string>> = {
  "echoes-its-input": "exec cat",
  "prints-on-both": "echo to out; echo to err >&2",
  "counts-up": "seq 200",
  "exits-with-3": "exit 3",
  "dies-of-segv": "kill -SEGV $$",
  waits: "echo ready; exec sleep 60",
  "ignores-term": "trap '' TERM; echo ready; while :; do sleep 60; done",
};

/** The contract, with workers that are shell scripts in real cells. */
export function contractInCells(
  name: string,
  open: () => Promise<Pick<Engine, "folder" | "plan"> & Omit<DriverHarness, "plan">>,
): void {
  driverContract(name, async (): Promise<DriverHarness> => {
    const opened = await open();
    const data = await opened.folder("data");
    const pre_approved = { write: "pre_approved", delete: "pre_approved" } as const;
    const mounts = [mount("/data", "rw", { host: data, approval: pre_approved })];
    return {
      maker: opened.maker,
      driverOf: opened.driverOf,
      plan: (behaviour, run) => {
        const command = behaviour === "no such command" ? [behaviour] : ["sh", "-c", SCRIPTS[behaviour]];
        return opened.plan({ command, mounts, ...(run === undefined ? {} : { run }) });
      },
      traces: opened.traces,
      ...present({ withoutProcesses: opened.withoutProcesses }),
      [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
    };
  });
}
