import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { resourcePath, resourceUri } from "../../../src/mcp/protocol-server.ts";
import { parseVirtualPath } from "../../../src/sandbox/virtual-path.ts";

describe("the URI of a file", () => {
  it("is read as the very path that it was made of, whatever that holds", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 200 }), (text) => {
        const parsed = parseVirtualPath(`/${text}`);
        if (!parsed.ok || parsed.path === "/") return;
        const uri = resourceUri(parsed.path);
        expect(uri).toMatch(/^corral:\/\/\/[\w.~!*'()%/-]+$/);
        expect(resourcePath(uri)).toEqual(parsed);
      }),
    );
  });

  it("never means a path with a dot component, and never throws", () => {
    const piece = fc.constantFrom(
      "..",
      "%2e%2e",
      "%2E.",
      ".",
      "/",
      "%2f",
      "a",
      "%00",
      "%",
      "\\",
      "%5c",
      "?",
      "#",
      "%25",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        const read = resourcePath(`corral:///${pieces.join("")}`);
        if (!read.ok) return;
        expect(parseVirtualPath(read.path)).toEqual(read);
        expect(read.path.split("/")).not.toContain("..");
      }),
    );
  });

  it.each([
    ["corral:///", "/"],
    ["corral:///docs//a.txt", "/docs/a.txt"],
    ["corral:///docs/%C3%A4%20b", "/docs/ä b"],
    ["corral:///docs/%252e%252e", "/docs/%2e%2e"],
  ])("%s means %s", (uri, path) => {
    expect(resourcePath(uri)).toEqual({ ok: true, path });
  });

  it.each([
    "file:///etc/passwd",
    "corral://host/docs",
    "corral:/docs",
    "CORRAL:///docs",
    "corral:///docs/../etc",
    "corral:///docs/%2e%2e/etc",
    "corral:///docs/%2E./etc",
    "corral:///docs/..%2fetc",
    "corral:///docs%2f..%2fetc",
    "corral:///docs/a%00.txt",
    "corral:///docs/a%0a.txt",
    "corral:///docs/a%5cb",
    "corral:///docs/a\\b",
    "corral:///docs/%ff",
    "corral:///docs/%c0%ae%c0%ae/etc",
    "corral:///docs/%",
    "corral:///docs?x",
    "corral:///docs#x",
    `corral:///${"a".repeat(20_000)}`,
    "",
  ])("%s means nothing", (uri) => {
    expect(resourcePath(uri).ok).toBe(false);
  });
});
