import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openProject, type ProjectFixture, sh, writable } from "../project-fixture.ts";
import { liveRegistry } from "./live-registry.ts";
import { NPM, npm, TOOL_ZONES } from "./npm-of-this-machine.ts";

/* The real npm, in a real cell, with the registry that this machine is configured for: the packages of Corral itself. */

const ROOT = join(import.meta.dirname, "../../..");

const live = !process.env.CORRAL_LONG
  ? "they take a minute; set CORRAL_LONG=1"
  : NPM === undefined
    ? "npm is not installed"
    : await liveRegistry("npm", "is-number");
if (typeof live === "string") console.log(`The tests of npm with a live registry are skipped: ${live}.`);

describe.skipIf(typeof live === "string")("npm ci of hundreds of packages in a cell", () => {
  let project: ProjectFixture;

  beforeAll(async () => {
    const [manifest, lock] = await Promise.all(
      ["package.json", "package-lock.json"].map((name) => readFile(join(ROOT, name), "utf8")),
    );
    const address = typeof live === "string" ? "" : live.address;
    const packages = [{ kind: "npm", addresses: [`${address}/32`] }];
    const install = sh(
      `cp /app/package.json /app/package-lock.json /work && cd /work && ${npm("ci", "--ignore-scripts", "--cache", "/tmp/cache")} 2>&1 | tail -20; ls node_modules | wc -l`,
    );
    const zones = [writable("work"), { name: "app" }, { name: "npm" }, { name: "nodejs" }];
    const limits = { memory: "2g", timeout: "3m" };
    project = await openProject({
      workers: {
        preset: { image: "corral/node", command: install, limits, sandbox: { zones, network: { packages } } },
        locked: {
          image: "corral/node",
          command: install,
          limits,
          sandbox: { zones, network: { packages, lockfiles: ["app/package-lock.json"] } },
        },
      },
      zones: { work: "rw" },
      files: { "app/package.json": manifest ?? "", "app/package-lock.json": lock ?? "" },
      sandbox: {
        zones: {
          work: { path: "./work", mode: "rw" },
          app: { path: "./app" },
          ...TOOL_ZONES,
        },
        network: { packages },
        limits: { memory: "2g" },
      },
      policy: "default",
    });
  });
  afterAll(() => project[Symbol.asyncDispose]());

  it.each(["preset", "locked"])("works by the %s", async (worker) => {
    const result = await project.run(worker);
    expect(Number(result.stdout.trim().split("\n").at(-1))).toBeGreaterThan(100);
    expect(result.network?.denied).toEqual([]);
  });
});
