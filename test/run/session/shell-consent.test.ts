import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { shellConsent, shownCommand } from "../../../src/run/session/checked-command.ts";

const part = fc.constantFrom("make", "\n", "(in '/work')", "(with X='a')", "(nothing beside it)", "'", "\\", ")", "a");
const text = fc.array(part, { minLength: 1, maxLength: 6 }).map((parts) => parts.join(""));
const request = fc
  .record({
    command: text,
    cwd: fc.option(text, { nil: undefined }),
    env: fc.option(fc.dictionary(fc.constantFrom("X", "Y"), text), { nil: undefined }),
    stdin: fc.option(text, { nil: undefined }),
  })
  .map(({ command, cwd, env, stdin }) => ({
    command,
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined || Object.keys(env).length === 0 ? {} : { env }),
    ...(stdin === undefined ? {} : { stdin }),
  }));

describe("what a person is shown of a command", () => {
  it("is never the same for two that do different things", () => {
    expect(shownCommand({ command: "make\n(in '/work')" })).not.toBe(shownCommand({ command: "make", cwd: "/work" }));
    fc.assert(
      fc.property(request, request, (one, other) => {
        const same = JSON.stringify(one) === JSON.stringify(other);
        expect(shownCommand(one) === shownCommand(other)).toBe(same);
      }),
      { numRuns: 2000 },
    );
  });

  it("is the command itself where nothing stands beside it", () => {
    expect(shownCommand({ command: "git status" })).toBe("git status");
  });
});

it("a variable that shells run is no ordinary one, also beside the line", () => {
  const rules = { default: "pre_approved", rules: [{ pattern: "rm **", approval: "blocked" }] } as const;
  const consentWith = (env: Record<string, string>) => shellConsent({ command: "set -x; ls", env }, rules).consent;
  expect([consentWith({ LANG: "C" }), consentWith({ PS4: "$(rm x)" })]).toEqual(["pre_approved", "blocked"]);
});
