import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    setupFiles: ["test/setup-warnings.ts"],
    // Tests that start containers take turns at one Engine: more files at once end no sooner.
    maxWorkers: 2,
    // Most tests run a real Engine on a machine that others use as well; what fails twice in a row is no noise.
    retry: 1,
    testTimeout: 60_000,
    // What a test waits for may come late on a busy machine; one that polls ends as soon as it is there.
    expect: { poll: { timeout: 30_000 } },
    hookTimeout: 120_000,
  },
});
