import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { openTracing } from "../../src/platform/tracing.ts";

describe("tracing", () => {
  it("is not loaded without an SDK", async () => {
    expect(await openTracing()).toBeNull();
  });

  it("brings a copy of the API that is old enough for the SDKs of the last years", () => {
    const { version } = createRequire(import.meta.url)("opentelemetry-api/package.json");
    expect(version).toMatch(/^1\.[0-4]\./);
  });
});
