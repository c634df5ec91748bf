import { expect, it } from "vitest";
import { nullFor } from "../../src/platform/errno.ts";

it("nullFor answers null for an error with one of its codes, and throws any other again", () => {
  expect(nullFor("ENOENT", "EEXIST")(Object.assign(new Error("taken"), { code: "EEXIST" }))).toBeNull();
  const denied = Object.assign(new Error("denied"), { code: "EACCES" });
  expect(() => nullFor("ENOENT")(denied)).toThrow(denied);
  expect(() => nullFor("ENOENT")(new Error("a bug"))).toThrow("a bug");
});
