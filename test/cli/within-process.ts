import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import type { Outcome } from "./cli-project.ts";

export interface Around {
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
}

/** A command that runs in this process, at the other ends of its streams. */
export interface Command {
  readonly stdin: PassThrough;
  readonly stdout: PassThrough;
  readonly stderr: PassThrough;
  /** Its exit status. */
  readonly ended: Promise<number>;
}

/**
 * Starts the command line as a process would whose streams are pipes. It is given all that it has of a process; relative
 * paths are still those of this one. That it ends what it began is not seen here, as a process ends with its command.
 */
export function startWithin(args: readonly string[], { env, cwd }: Around): Command {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  let left: number | null = null;
  const terminal: Terminal = {
    env,
    cwd,
    stdin: stdin as unknown as NodeJS.ReadStream,
    stdout: stdout as unknown as NodeJS.WriteStream,
    stderr: stderr as unknown as NodeJS.WriteStream,
    onStop: () => () => {},
    exit(status) {
      left = status;
      throw new Error(`left with ${status}`);
    },
  };
  const ended = main(args, terminal).then((status) => {
    for (const stream of [stdout, stderr]) stream.end();
    return left ?? status;
  });
  return { stdin, stdout, stderr, ended };
}

/** One command from its start to its end. */
export async function withinProcess(args: readonly string[], around: Around & { stdin: string }): Promise<Outcome> {
  using _ = workingIn(around.cwd);
  const { stdin, stdout, stderr, ended } = startWithin(args, around);
  stdin.end(around.stdin);
  const [status, out, err] = await Promise.all([ended, text(stdout), text(stderr)]);
  return { status, signal: null, stdout: out, stderr: err };
}

let home = "";
let commands = 0;

/** Files are named by paths from the working directory, which is the whole process's: commands at the same time share one. */
function workingIn(cwd: string): Disposable {
  if (commands === 0) home = process.cwd();
  else if (process.cwd() !== cwd)
    throw new Error(`another command runs in ${process.cwd()}: start a process in ${cwd}`);
  process.chdir(cwd);
  commands += 1;
  return {
    [Symbol.dispose]() {
      commands -= 1;
      if (commands === 0) process.chdir(home);
    },
  };
}
