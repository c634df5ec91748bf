import { PassThrough } from "node:stream";
import { finished } from "node:stream/promises";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import type { Outcome } from "./cli-project.ts";

export interface Around {
  readonly stdin: string;
  readonly env: NodeJS.ProcessEnv;
  readonly cwd: string;
}

/**
 * One command, as a process would run it whose streams are pipes. It is given all that it has of a process, so it may use
 * nothing of this one; that it ends what it began is not seen here, as a process ends with its command.
 */
export async function withinProcess(args: readonly string[], { stdin, env, cwd }: Around): Promise<Outcome> {
  const [stdout, stderr] = [new Gathered(), new Gathered()];
  const input = new PassThrough();
  input.end(stdin);
  let left: number | null = null;
  const terminal: Terminal = {
    env,
    cwd,
    stdin: input as unknown as NodeJS.ReadStream,
    stdout: stdout as unknown as NodeJS.WriteStream,
    stderr: stderr as unknown as NodeJS.WriteStream,
    onStop: () => () => {},
    exit(status) {
      left = status;
      throw new Error(`left with ${status}`);
    },
  };
  using _ = workingIn(cwd);
  const status = await main(args, terminal);
  return { status: left ?? status, signal: null, stdout: await stdout.text(), stderr: await stderr.text() };
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

/** What a pipe's other end read. */
class Gathered extends PassThrough {
  readonly #chunks: Buffer[] = [];

  constructor() {
    super();
    this.on("data", (chunk: Buffer) => void this.#chunks.push(chunk));
  }

  async text(): Promise<string> {
    this.end();
    await finished(this);
    return Buffer.concat(this.#chunks).toString();
  }
}
