import { expect, it } from "vitest";
import { COMMANDS_PATH, SERVER_COMMAND } from "../../../src/isolation/plan/plan.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { openRunc } from "./runc.ts";

it("a cell of runc starts commands by its first process", async () => {
  await using runc = await openRunc();
  const pipes = await runc.folder("pipes");
  const { plan, pins } = await runc.plan({ command: SERVER_COMMAND, mounts: [mount("/data", "ro", { host: pipes })] });
  const mounts = plan.mounts.map((each) => (each.path === "/data" ? { ...each, path: COMMANDS_PATH } : each));
  const started = await runc.driver.startSession({
    plan: { ...plan, mounts, startsCommands: true },
    pins,
    signal: new AbortController().signal,
    onOutput: () => {},
  });
  if (!started.ok) throw new Error(JSON.stringify(started.violations));
  await using cell = started.cell;
  const ran = async (script: string, stdin = "") => {
    let text = "";
    const onOutput = (_: string, chunk: Buffer): void => {
      text += chunk.toString();
    };
    const argv = ["sh", "-c", script];
    const exec = await cell.exec({ argv, cwd: "/tmp", env: { A: "b" }, stdin: Buffer.from(stdin), onOutput });
    const exit = await exec.exit;
    return { text, exit };
  };
  const first = await ran("pwd; echo $A $$ $PPID; cat; exit 3", "in\n");
  expect(first.exit).toEqual({ kind: "exited", code: 3, cellAlive: true, outOfMemory: false });
  expect(first.text).toMatch(/^\/tmp\nb \d+ 1\nin\n$/);
  expect((await ran("cat /proc/1/cmdline | tr '\\0' ' '")).text).toBe("/.corral/busybox sh ");
  const begun = performance.now();
  for (let n = 0; n < 20; n += 1) await ran("true");
  console.log(`${((performance.now() - begun) / 20).toFixed(1)} ms a command`);
  const stuck = ran("trap '' TERM; while :; do sleep 60; done");
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(await cell.signalAll("SIGKILL")).toBe(true);
  expect((await stuck).exit).toEqual({ kind: "exited", code: 137, cellAlive: true, outOfMemory: false });
});
