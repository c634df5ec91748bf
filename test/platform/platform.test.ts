import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { nullFor } from "../../src/platform/errno.ts";
import { openTracing } from "../../src/platform/tracing.ts";
import { onAbort } from "../../src/platform/within.ts";

it("nullFor answers null for an error with one of its codes, and throws any other again", () => {
  expect(nullFor("ENOENT", "EEXIST")(Object.assign(new Error("taken"), { code: "EEXIST" }))).toBeNull();
  const denied = Object.assign(new Error("denied"), { code: "EACCES" });
  expect(() => nullFor("ENOENT")(denied)).toThrow(denied);
  expect(() => nullFor("ENOENT")(new Error("a bug"))).toThrow("a bug");
});

describe("onAbort", () => {
  it("acts when the signal is aborted, and at once if it already is", () => {
    let acted = 0;
    const controller = new AbortController();
    using _ = onAbort(controller.signal, () => {
      acted += 1;
    });
    expect(acted).toBe(0);
    controller.abort();
    expect(acted).toBe(1);
    using __ = onAbort(controller.signal, () => {
      acted += 1;
    });
    expect(acted).toBe(2);
  });

  it("does not act after it is disposed of", () => {
    let acted = 0;
    const controller = new AbortController();
    onAbort(controller.signal, () => {
      acted += 1;
    })[Symbol.dispose]();
    controller.abort();
    expect(acted).toBe(0);
  });
});

describe("tracing", () => {
  it("is not loaded without an SDK", async () => {
    expect(await openTracing()).toBeNull();
  });

  it("brings a copy of the API that is old enough for the SDKs of the last years", () => {
    const { version } = createRequire(import.meta.url)("opentelemetry-api/package.json");
    expect(version).toMatch(/^1\.[0-4]\./);
  });
});
