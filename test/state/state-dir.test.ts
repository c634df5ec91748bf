import { homedir } from "node:os";
import { describe, expect, it } from "vitest";
import { stateDirFrom } from "../../src/state/state-dir.ts";

describe("stateDirFrom", () => {
  it("takes Corral's own variable first, then XDG's, then the home folder", () => {
    const env = { CORRAL_STATE_DIR: "/one", XDG_STATE_HOME: "/two", HOME: "/three" };
    expect(stateDirFrom(env)).toBe("/one");
    expect(stateDirFrom({ ...env, CORRAL_STATE_DIR: "" })).toBe("/two/corral");
    expect(stateDirFrom({ HOME: "/three" })).toBe("/three/.local/state/corral");
    expect(stateDirFrom({})).toBe(`${homedir()}/.local/state/corral`);
  });

  it("is absolute: Corral's own variable counts from the working directory, a relative XDG one is ignored", () => {
    expect(stateDirFrom({ CORRAL_STATE_DIR: "here" })).toBe(`${process.cwd()}/here`);
    expect(stateDirFrom({ XDG_STATE_HOME: "here", HOME: "/three" })).toBe("/three/.local/state/corral");
  });
});
