import { describe, expect, it } from "vitest";
import { messageOf } from "../../src/cli/prompt.ts";

describe("the question that a person is asked", () => {
  const question = { worker: "w", operations: ["exec"], paths: [], runs: 1 };

  it("shows where a line of the command ends, so that what follows a comment is seen to be a command", () => {
    expect(messageOf({ ...question, command: "true # then\nrm -rf /data" })).toContain("true # then⏎ rm -rf /data");
  });

  it("shows a long path whole", () => {
    const path = `/data/${"a".repeat(400)}/end`;
    expect(messageOf({ ...question, operations: ["delete"], paths: [path] })).toContain(path);
  });
});
