import { describe, expect, it } from "vitest";
import { parseOptions, SUITE_NAMES } from "../../bench/options.ts";

describe("the bench's options", () => {
  it("ask for the usual length and write no files where nothing is said", () => {
    expect(parseOptions([], "/here")).toEqual({
      level: "usual",
      json: null,
      svg: null,
      peers: false,
      suites: SUITE_NAMES,
    });
  });

  it("name files from where the bench was called", () => {
    const options = parseOptions(
      ["--quick", "--json", "out.json", "--svg", "/tmp/c.svg", "--only", "rates", "--only", "runs"],
      "/here",
    );
    expect(options).toMatchObject({
      level: "quick",
      json: "/here/out.json",
      svg: "/tmp/c.svg",
      suites: ["runs", "rates"],
    });
  });

  it("are refused where they contradict each other, or where there is no such option", () => {
    expect(() => parseOptions(["--quick", "--full"], "/")).toThrow("exclude each other");
    expect(() => parseOptions(["--fast"], "/")).toThrow();
    expect(() => parseOptions(["--only", "speed"], "/")).toThrow("there is no suite speed; there are memory, runs");
  });
});
