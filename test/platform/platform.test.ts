import { createRequire } from "node:module";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseNameGlob, parsePathGlob } from "../../src/approval/memory.ts";
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

/** Names with what has a meaning in a pattern or ends a line, but no wildcard. */
const name = fc
  .string({
    unit: fc.constantFrom(..."ab. -_!()[]{}\\+@$^|,#~é😀'\"\n\r\u2028\u2029\u0085"),
    minLength: 1,
    maxLength: 5,
  })
  .filter((text) => text !== "." && text !== "..");

describe("the globs of rules", () => {
  it("match every name by their wildcards: none with a line break escapes a rule that denies", () => {
    fc.assert(
      fc.property(name, (text) => {
        expect(parseNameGlob("*")(text)).toBe(true);
        expect(parsePathGlob("/x/**").matches(`/x/${text}`)).toBe(true);
        expect(parsePathGlob("/x/**").matches(`/x/${text}/${text}`)).toBe(true);
        expect(parsePathGlob("/x/*/y").touches(`/x/${text}/y`)).toBe(true);
      }),
    );
  });

  it("match their own text", () => {
    fc.assert(
      fc.property(name, (text) => {
        expect(parseNameGlob(text)(text)).toBe(true);
        expect(parsePathGlob(`/${text}/q`).touches(`/${text}`)).toBe(true);
      }),
    );
  });
});
