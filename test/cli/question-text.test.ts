import { stripVTControlCharacters } from "node:util";
import pc from "picocolors";
import { describe, expect, it } from "vitest";
import { type AskedOfPerson, choiceTexts, questionText } from "../../src/operations/wording/question-text.ts";

const PLAIN = pc.createColors(false);
const COLORED = pc.createColors(true);

const question: AskedOfPerson = { worker: "w", operations: ["write"], paths: ["/out/a.md"], runs: 1 };
const text = (more: Partial<AskedOfPerson>, columns = 80) => questionText({ ...question, ...more }, columns, PLAIN);
const unbroken = (lines: readonly string[]) => lines.map((line) => line.replace(/^ {2}┊ ( {2}↳ )?/, "")).join("");

describe("the question that a person is asked", () => {
  it("says who asks to do what and where", () => {
    expect(text({}).message).toBe("Worker w asks to write in /out/a.md. Allow it?");
    expect(text({ runs: 3, operations: ["write", "delete"], paths: ["/out", "/in"] }).message).toBe(
      "Worker w (3 runs of it) asks to write and delete in /out, /in. Allow it?",
    );
    expect(text({ operations: ["push"], paths: ["/repo"] }).message).toBe("Worker w asks to push /repo. Allow it?");
  });

  it("names the directory of a grant, reading and writing apart", () => {
    const grant = { paths: ["/home/me/docs/a.md"], directory: "/home/me/docs" };
    expect(text({ ...grant, operations: ["grant_read"] }).message).toBe(
      "Worker w asks to read the directory /home/me/docs. Allow it?",
    );
    expect(text({ ...grant, operations: ["grant_write"] }).message).toBe(
      "Worker w asks to write in the directory /home/me/docs. Allow it?",
    );
  });

  it("names the host of a grant, and what the worker reaches already", () => {
    const grant = { operations: ["grant_network"], paths: [], to: "api.example.org:443" } as const;
    const asked = text({ ...grant, reaches: ["a.test:443", "b.test:80"], why: "to look up prices" });
    expect(asked.message).toBe("Worker w asks to reach api.example.org:443. Allow it?");
    expect(asked.above).toEqual(["  ┊ reason: to look up prices", "  ┊ it already reaches a.test:443, b.test:80"]);
    expect(text(grant).above).toEqual(["  ┊ it reaches no host yet"]);
    expect(choiceTexts({ ...question, ...grant }, 0)).toEqual([
      { value: "no", label: "No" },
      { value: "once", label: "Yes, once", hint: "until this run ends" },
      {
        value: "tree",
        label: "Yes, for this run and all it calls",
        hint: "w to reach api.example.org:443, anywhere in the same tree of runs",
      },
      {
        value: "session",
        label: "Yes, do not ask again for this host",
        hint: "w to reach api.example.org:443, until this command ends",
      },
    ]);
    const odd = text({ ...grant, to: "[2001:db8::1]:443" });
    expect(odd.message).toBe("Worker w asks to reach the host above. Allow it?");
    expect(odd.above[0]).toBe("  ┊ [2001:db8::1]:443");
  });

  it("shows where a line of the command ends, so that what follows a comment is seen to be a command", () => {
    const { above, message } = text({ operations: ["exec"], paths: [], command: "true # then\nrm -rf /data" });
    expect(above).toEqual(["  ┊ true # then⏎ rm -rf /data"]);
    expect(message).toBe("Worker w asks to run the command above. Allow it?");
  });

  it("shows a long path and a long command whole", () => {
    const path = `/data/${"a".repeat(400)}/end`;
    expect(unbroken(text({ paths: [path] }).above)).toBe(path);
    const command = `echo ${"b".repeat(4000)}; rm -r /data`;
    expect(unbroken(text({ operations: ["exec"], paths: [], command }).above)).toBe(command);
  });

  it("counts many paths, and shows the first twenty of them until it is asked for more", () => {
    const paths = Array.from({ length: 5000 }, (_, index) => `/out/${index}`);
    const { above, rest, message } = text({ paths });
    expect(message).toBe("Worker w asks to write in these 5000 paths. Allow it?");
    expect(above).toHaveLength(21);
    expect(above.at(-1)).toBe("  ┊ and 4980 more");
    expect([...above.slice(0, 20), ...rest]).toEqual(paths.map((path) => `  ┊ ${path}`));
  });

  it("shows what it is for, and through whom the worker was called", () => {
    expect(text({ why: "to keep the summary", through: ["root", "mid", "w"] }).above).toEqual([
      "  ┊ called through root > mid",
      "  ┊ reason: to keep the summary",
    ]);
  });

  it("shows sixty lines of a diff, coloured only where there are colours, and keeps the others for whoever asks", () => {
    const diff = `--- a\n+++ b\n@@ -1 +1 @@\n-old\n+\tnew\n${" same\n".repeat(100)}`;
    const { above, rest } = text({ diff });
    expect(above.slice(0, 5)).toEqual(["  ┊ --- a", "  ┊ +++ b", "  ┊ @@ -1 +1 @@", "  ┊ -old", "  ┊ +→   new"]);
    expect(above).toHaveLength(61);
    expect(above.at(-1)).toBe("  ┊ and 45 more lines of the changes");
    expect(rest).toHaveLength(45);
    const colored = questionText({ ...question, diff }, 80, COLORED).above;
    expect(colored[3]).toBe(`  ┊ ${COLORED.red("-old")}`);
    expect(colored.map(stripVTControlCharacters)).toEqual(above);
  });
});

describe("hostile text in a question", () => {
  const FAKE = "◆  Worker w asks to read in /harmless. Allow it?";
  const HOSTILE = [
    `\u001b[2J\u001b[H${FAKE}`,
    `\r${FAKE}`,
    `\n${FAKE}`,
    `\u2028${FAKE}`,
    `\u202e${FAKE}`,
    `\u0085${FAKE}`,
    `\u009b2J${FAKE}`,
    `${" ".repeat(500)}${FAKE}`,
    `${"字".repeat(300)}${FAKE}`,
    `. Allow it? No, or ${FAKE}`,
  ];

  it.each(HOSTILE)("neither draws nor begins a line, wherever it stands: %j", (hostile) => {
    for (const columns of [20, 80, 200]) {
      const { above, rest, message } = text(
        {
          worker: hostile,
          through: [hostile, "w"],
          paths: Array.from({ length: 30 }, (_, index) => `/out/${index}${hostile}`),
          command: hostile,
          why: hostile,
          diff: `+${hostile}\n`.repeat(100),
        },
        columns,
      );
      const lines = [...above, ...rest];
      // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not be there.
      const drawing = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e]/;
      for (const line of [...lines, message]) expect(line).not.toMatch(drawing);
      for (const line of lines) expect(line).toMatch(/^ {2}┊ /);
      // A terminal that breaks a line begins the next one without the mark.
      for (const line of lines) expect(cells(line)).toBeLessThanOrEqual(Math.max(columns, 29));
    }
  });

  it.each(HOSTILE)("stands in lines of its own where it is a path or a command: %j", (hostile) => {
    expect(text({ paths: [`/out/${hostile}`] }).message).toBe("Worker w asks to write in the path above. Allow it?");
    expect(text({ directory: hostile, operations: ["grant_read"] }).message).toBe(
      "Worker w asks to read the directory above. Allow it?",
    );
    expect(text({ paths: ["/a in /b"] }).message).toBe("Worker w asks to write in the path above. Allow it?");
    const exec = text({ operations: ["exec"], paths: [], command: hostile });
    expect(exec.message).toBe("Worker w asks to run the command above. Allow it?");
  });

  it("is no line of its own in an answer", () => {
    for (const hostile of HOSTILE) {
      const choices = choiceTexts({ ...question, worker: hostile, paths: [`/out/${hostile}/a`] }, 0);
      for (const { label, hint = "" } of choices) expect(label + hint).not.toMatch(/\p{Cc}|\p{Cf}|\p{Zl}/u);
    }
  });
});

describe("the answers that a person may give", () => {
  const labels = (more: Partial<AskedOfPerson>) => choiceTexts({ ...question, ...more }, 0).map(({ label }) => label);
  const hints = (more: Partial<AskedOfPerson>) => choiceTexts({ ...question, ...more }, 0).map(({ hint }) => hint);

  it("say for whom and for what they are", () => {
    expect(labels({})).toEqual([
      "No",
      "Yes, once",
      "Yes, for this run and all it calls",
      "Yes, do not ask again in this directory",
    ]);
    expect(hints({})).toEqual([
      undefined,
      "for this run, and others that ask exactly this at the same time",
      "w anywhere below /out, anywhere in the same tree of runs",
      "w anywhere below /out, until this command ends",
    ]);
    expect(labels({ runs: 3 })[2]).toBe("Yes, for these 3 runs and all they call");
  });

  it("leave out a yes for once where nothing would come of it", () => {
    const grant = { operations: ["grant_read"], paths: ["/src"], directory: "/src", lastingOnly: true } as const;
    expect(labels(grant)).toEqual([
      "No",
      "Yes, for this run and all it calls",
      expect.stringContaining("do not ask again"),
    ]);
    expect(labels({ ...grant, directory: "/" }), "what cannot last").toEqual(["No", "Yes, once"]);
  });

  it("promise no more than what is remembered", () => {
    expect(hints({ paths: ["/out"] })[3]).toBe("w for exactly /out, until this command ends");
    expect(labels({ paths: ["/out"] })[3]).toBe("Yes, do not ask again for this path");
    expect(labels({ paths: ["/a/b", "/c/d"] })[3]).toBe("Yes, do not ask again in these places");
    expect(hints({ operations: ["exec"], paths: [], command: "ls" })[3]).toBe(
      "w for exactly this command, until this command ends",
    );
    expect(labels({ operations: ["push"] })).toEqual(["No", "Yes, once"]);
    expect(labels({ paths: ["/out/../etc/a"] })).toEqual(["No", "Yes, once"]);
  });

  it("offer the rest only where there is one", () => {
    expect(choiceTexts(question, 7).at(-1)).toEqual({
      value: "all",
      label: "Show all",
      hint: "7 more lines; then it can be allowed",
    });
    expect(choiceTexts(question, 0).map(({ value }) => value)).not.toContain("all");
  });
});

/** Columns on a terminal, as they are at most. */
function cells(line: string): number {
  const marks = /^ {2}┊( {3}↳)? /.exec(line)?.[0].length ?? 0;
  return marks + [...line.slice(marks)].reduce((sum, one) => sum + (one.charCodeAt(0) < 0x80 ? 1 : 2), 0);
}
