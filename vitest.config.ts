import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { serverPrograms } from "./test/fleet/postgres/server-fixture.ts";
import { AT_LENGTH } from "./test/tiers/at-length.ts";
import { filesByDriver } from "./test/tiers/drivers.ts";
import { LastLines } from "./test/tiers/last-lines.ts";
import { ON_SERVER, SHARED_STORES, SLOW, STORES, tiersOf } from "./test/tiers/tiers.ts";

// ext4 without a journal looks long for a free inode where many files were just removed. Marked as a top of hierarchies (+T), a folder
// has its own folders spread over the disk. Other users' programs work below it too.
const temporary = mkdtempSync(join(tmpdir(), "ct-"));
chmodSync(temporary, 0o1777);
spawnSync("chattr", ["+T", temporary], { stdio: "ignore" });
process.env.TMPDIR = temporary;
// Tests start some programs hundreds of times; each is compiled once in a run.
const compiled = join(temporary, "compiled");
process.env.NODE_COMPILE_CACHE = compiled;
process.on("exit", () => {
  try {
    // A program that a killed one left to clean up writes what it compiled when it ends.
    rmSync(compiled, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  } catch (error) {
    process.stderr.write(`${String(error)}\n`);
  }
  // What a test left, a mount perhaps, is not removed with it.
  spawnSync("rmdir", [temporary], { stdio: "ignore" });
});

const { unit, long, engine } = tiersOf(import.meta.dirname);
const hasRunc = process.env.CORRAL_TESTS !== "engine";
const { runc, engine: onEngine } = filesByDriver(engine, { hasRunc });
const always = ["test/setup-warnings.ts", "test/tiers/watched-loop.ts"];
// Tests on a real Engine share it with others: what fails twice in a row is no noise. The unit tier retries nothing.
const withEngine = { setupFiles: always, globalSetup: "test/tiers/engine-tier.ts", retry: 1 };
const withoutEngine = [...always, "test/tiers/no-engine.ts"];

/** Projects with `CORRAL_TEST_STORE` try what a store of fleets promises on another one than SQLite. */
const stores = { include: [...STORES, ...SHARED_STORES], setupFiles: withoutEngine, sequence: { groupOrder: 1 } };
const hasServer = serverPrograms() !== null;
if (!hasServer) process.stderr.write("no tests on a PostgreSQL server: apt-get install postgresql\n");

/**
 * Some are small as files, and would else run last, beside idle workers. A worker ends if the next file is another project's, and a new one loads all
 * modules once more, so the files of a project are never apart.
 */
class SlowFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isSlow = ({ moduleId }: TestSpecification): boolean => SLOW.includes(relative(import.meta.dirname, moduleId));
    const byProject = Map.groupBy(await super.sort(files), ({ project }) => project);
    return [...byProject.values()].flatMap((of) => [...of.filter(isSlow), ...of.filter((file) => !isSlow(file))]);
  }
}

export default defineConfig({
  test: {
    // Tests of the Engine wait for it much of the time, so there is work for more files than a small machine has cores.
    maxWorkers: 4,
    // Files share a process, so each module loads once. Nothing of Corral has module state that a file could leave behind.
    // Measured side by side, Node's own imports and V8's settings of heap and threads take no less processor time.
    isolate: false,
    reporters: ["default", new LastLines()],
    sequence: { sequencer: SlowFirst },
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // What a test waits for may come late on a busy machine; one that polls ends as soon as it is there.
    expect: { poll: { timeout: 30_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: unit,
          setupFiles: withoutEngine,
          sequence: { groupOrder: 0 },
          // They compute, and wait for little: each further process would only load and compile all modules once more.
          maxWorkers: Math.min(4, availableParallelism()),
        },
      },
      // It stands for a server where there is none.
      ...(hasServer && !AT_LENGTH
        ? []
        : [{ extends: true as const, test: { ...stores, name: "pglite", env: { CORRAL_TEST_STORE: "pglite" } } }]),
      ...(hasServer
        ? [
            {
              extends: true as const,
              test: {
                ...stores,
                include: [...stores.include, ...ON_SERVER],
                name: "postgres",
                globalSetup: "test/tiers/postgres-tier.ts",
                env: { CORRAL_TEST_STORE: "postgres" },
              },
            },
            {
              extends: true as const,
              test: {
                ...withEngine,
                name: "fleets-in-postgres",
                include: ["test/fleet/fleet.test.ts"],
                globalSetup: [withEngine.globalSetup, "test/tiers/postgres-tier.ts"],
                env: { CORRAL_DRIVER: process.env.CORRAL_DRIVER ?? "prefer-runc", CORRAL_TEST_STORE: "postgres" },
                sequence: { groupOrder: 1 },
              },
            },
          ]
        : []),
      { extends: true, test: { name: "long", include: long, setupFiles: withoutEngine, sequence: { groupOrder: 1 } } },
      {
        extends: true,
        test: {
          ...withEngine,
          name: "runc",
          include: runc,
          env: { CORRAL_DRIVER: process.env.CORRAL_DRIVER ?? "prefer-runc" },
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: {
          ...withEngine,
          name: "engine",
          include: onEngine,
          env: { CORRAL_DRIVER: "engine", CORRAL_TESTS_AGAIN: hasRunc ? "1" : "" },
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
