import { describe, expect, it } from "vitest";
import { decodedMountField } from "../../../src/files/host/descriptor.ts";

describe("a field of mountinfo", () => {
  it.each([
    ["/plain", "/plain"],
    ["/a\\040b", "/a b"],
    ["/tab\\011, line\\012", "/tab\t, line\n"],
    ["/back\\134slash", "/back\\slash"],
    ["/back\\134040", "/back\\040"],
    ["/\\09", "/\\09"],
  ])("is read once and no more: %j is %j", (field, path) => {
    expect(decodedMountField(field)).toBe(path);
  });
});
