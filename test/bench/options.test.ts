import { describe, expect, it } from "vitest";
import { parseOptions, SUITE_NAMES } from "../../bench/options.ts";

describe("the bench's options", () => {
  it("ask for the usual length and write no files where nothing is said", () => {
    expect(parseOptions([], "/here")).toEqual({
      level: "usual",
      json: null,
      svg: null,
      from: [],
      pages: false,
      peers: false,
      repeat: 1,
      policy: "batch",
      suites: SUITE_NAMES,
      command: "npm run bench",
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
      command: "npm run bench -- --quick --only rates --only runs",
    });
  });

  it("name reports that are shown in place of a measure", () => {
    const options = parseOptions(["--from", "a.json", "--from", "/b.json", "--pages"], "/here");
    expect(options).toMatchObject({ from: ["/here/a.json", "/b.json"], pages: true });
  });

  it("repeat the whole, a few times at most", () => {
    expect(parseOptions(["--repeat", "3"], "/").repeat).toBe(3);
    for (const wrong of ["0", "10", "2.5", "often"])
      expect(() => parseOptions(["--repeat", wrong], "/")).toThrow(`from 1 to 9, not ${wrong}`);
  });

  it("are refused where they contradict each other, or where there is no such option", () => {
    expect(() => parseOptions(["--quick", "--full"], "/")).toThrow("exclude each other");
    expect(() => parseOptions(["--fast"], "/")).toThrow();
    expect(() => parseOptions(["--only", "speed"], "/")).toThrow("there is no suite speed; there are memory, runs");
  });
});
