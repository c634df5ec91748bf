import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LastWords } from "../../../src/isolation/gate/gate-streams.ts";

const STARTED = "[INFO  tini (1)] Spawned child process '/.corral/busybox' with pid '7'\n";
const byItself = (code: number) => `${STARTED}[INFO  tini (1)] Main child exited normally (with status '${code}')\n`;
const KILLED = `${STARTED}[INFO  tini (1)] Main child exited with signal (with signal 'Killed')\n`;

function read(pieces: readonly string[], code: number) {
  const words = new LastWords();
  const passed = pieces.map((piece) => words.add(Buffer.from(piece, "latin1")).toString("latin1"));
  return { output: passed.join("") + words.end().toString("latin1"), bySignal: words.endedBySignal(code), passed };
}

describe("the last words of the init process", () => {
  it("tell a signal from the same exit code, and are no output", () => {
    expect(read(["a\nb", KILLED], 137)).toMatchObject({ output: "a\nb", bySignal: true });
    expect(read([`a\nb${byItself(137)}`], 137)).toMatchObject({ output: "a\nb", bySignal: false });
    expect(read(["a\n"], 137)).toMatchObject({ output: "a\n", bySignal: undefined });
    expect(read([byItself(0)], 137).bySignal, "of another end").toBeUndefined();
  });

  it("count if a worker has printed the same before, or prints once more after them", () => {
    expect(read([byItself(137), "x", KILLED, "late"], 137)).toMatchObject({ output: "xlate", bySignal: true });
  });

  it("hold nothing back that cannot be them", () => {
    expect(read(["$ [INFO] up [", "x", "[INFO  tini (1)] Spawned child process 'sh'"], 0).passed).toEqual([
      "$ [INFO] up ",
      "[x",
      "[INFO  tini (1)] Spawned child process 'sh'",
    ]);
    const endless = `${STARTED.trimEnd()}${"y".repeat(2000)}`;
    expect(read([endless], 0).passed).toEqual([endless]);
  });

  it("are found however the output is cut, and nothing else is lost", () => {
    const part = fc.constantFrom("[", "a", "\n", "[INFO  tini (1)] ", STARTED, STARTED.slice(0, 60), "\xff");
    fc.assert(
      fc.property(
        fc.array(part),
        fc.constantFrom("", KILLED, byItself(3)),
        fc.array(fc.nat(400)),
        (parts, last, cuts) => {
          const printed = parts.join("");
          const text = printed + last;
          const at = [0, ...cuts.map((cut) => cut % (text.length + 1)).sort((a, b) => a - b), text.length];
          const pieces = at.slice(1).map((end, index) => text.slice(at[index], end));
          const { output, bySignal } = read(pieces, 3);
          expect(output).toBe(printed);
          expect(bySignal).toBe(last === "" ? undefined : last === KILLED);
        },
      ),
    );
  });
});
