import { afterAll, beforeAll, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

const network = { allow: [{ to: "127.0.0.9:1", addresses: ["127.0.0.9/32"] }] };

let project: CliProject;
beforeAll(async () => {
  const script = sh("curl -s http://127.0.0.9:1/; curl -s http://other.example/; curl -s http://other.example/");
  project = await cliProject({
    yaml: { version: 1, policy: "default", sandbox: { zones: {}, network } },
    workers: {
      boss: { command: sh("corral-call net > /dev/null"), sandbox: { network }, calls: ["net"] },
      net: { command: script, sandbox: { network } },
    },
  });
});
afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

it("corral run prints a line for each host that the network of a run or of a call denied", async () => {
  const own = await project.corral(["run", "net"]);
  expect(own.stdout).toContain("other.example:80 is not allowed. Allowed: 127.0.0.9:1.\n");
  const lines = [
    expect.stringMatching(/^corral: network: denied other\.example:80 ×2 \(net\): .* Allowed: 127\.0\.0\.9:1\.$/),
    expect.stringMatching(/^corral: network: denied 127\.0\.0\.9:1 \(net\): /),
  ];
  expect(own.stderr.trimEnd().split("\n")).toEqual(lines);
  const called = await project.corral(["run", "boss", "--json"]);
  expect(called.stderr.trimEnd().split("\n")).toEqual(lines);
  expect(JSON.parse(called.stdout)).toMatchObject({
    network: { denied: [] },
    calls: [{ network: { denied: [{ reason: "host", count: 2 }, { reason: "unreachable" }] } }],
  });
});
