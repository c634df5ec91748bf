import { describe, expect, it } from "vitest";
import { narrowToRoots } from "../../../src/mcp/connection/connection.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { Sandbox } from "../../../src/sandbox/sandbox.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";

/** `PATH HOST MODE`. */
function sandboxOf(...mounts: readonly string[]): Sandbox {
  const parsed = mounts.map((text): Mount => {
    const [path = "", host = "", mode = ""] = text.split(" ");
    return { name: path.slice(1), path: path as VirtualPath, host, mode: mode as "ro" | "rw" };
  });
  return { mounts: parsed } as unknown as Sandbox;
}

describe("what of a sandbox lies in a client's roots", () => {
  const two = sandboxOf("/docs /h/docs ro", "/out /h/out rw");
  it.each([
    ["all of it where a root holds all", two, ["/h"], ["/docs", "/out"], ["/out"]],
    ["one directory where a root is that", two, ["/h/out"], ["/out"], ["/out"]],
    [
      "a part where a root is one",
      two,
      ["/h/out/sub/deep", "/h/docs/a"],
      ["/docs/a", "/out/sub/deep"],
      ["/out/sub/deep"],
    ],
    ["nothing where no root touches it", two, ["/elsewhere", "/h/doc", "/h/docs-evil"], [], []],
    ["nothing where there is no root", two, [], [], []],
    ["the part below a namespace's own root", sandboxOf("/ /h rw"), ["/h/a/b"], ["/a/b"], ["/a/b"]],
    [
      "the mount inside, without the one around",
      sandboxOf("/d /h/d ro", "/d/in /x/in rw"),
      ["/x"],
      ["/d/in"],
      ["/d/in"],
    ],
    [
      "not the mount around, which would show what the one inside hides",
      sandboxOf("/d /h/d ro", "/d/in /x/in rw"),
      ["/h"],
      [],
      [],
    ],
    [
      "parts of a mount beside one that stands in it",
      sandboxOf("/d /h/d rw", "/d/in /x/in ro"),
      ["/h/d/a", "/h/d/in"],
      ["/d/a"],
      ["/d/a"],
    ],
    ["nothing that no path can name", two, ["/h/out/a\\b", "/h/out/a\nb"], [], []],
  ] as [string, Sandbox, string[], string[], string[]][])("is %s", (_, sandbox, hosts, allowRead, allowWrite) => {
    const narrow = narrowToRoots(sandbox, hosts);
    expect([...(narrow.allowRead ?? [])].sort()).toEqual(allowRead);
    expect([...(narrow.allowWrite ?? [])].sort()).toEqual(allowWrite);
  });
});
