#!/usr/bin/env node
import { type Stats, statSync } from "node:fs";
import module from "node:module";
import { packageVersion } from "../operations/package-version.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { statePaths } from "../state/state-paths.ts";
import { EXIT } from "./terminal/exit-status.ts";
import { type Terminal, terminalOf } from "./terminal/terminal.ts";

/** As `engines` of the package says. An older one fails somewhere in the middle, over words that it does not know. */
const OLDEST_NODE = [22, 13] as const;

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  process.stderr.write(
    `corral: Node ${OLDEST_NODE.join(".")} or newer is needed, and this is ${process.versions.node}\n`,
  );
  process.exit(1);
}

// Loading the code is half the time of a short run, so it is kept compiled where only this user can write. What makes
// the state directory gives it its mode; until then there is no cache.
const stateDir = stateDirFrom(process.env);
const state = stateOf(stateDir);
if (state !== undefined && state.uid === process.geteuid?.() && (state.mode & 0o022) === 0)
  module.enableCompileCache(statePaths(stateDir).compiled);

const args = process.argv.slice(2);
const terminal = terminalOf(process);
const status = await (isVersionAsked(args) ? printVersion(terminal) : run(args, terminal));

// Whatever a library still holds open must not keep a finished command alive. What was printed is read first.
const written = (stream: NodeJS.WriteStream) => new Promise((resolve) => stream.write("", resolve));
await Promise.all([written(process.stdout), written(process.stderr)]);
process.exit(terminal.fault === null ? status : EXIT.engineTrouble);

/** Scripts ask for it often, and it needs no parser. */
function isVersionAsked([first]: readonly string[]): boolean {
  return first === "--version" || first === "-V";
}

function printVersion({ stdout }: Terminal): number {
  stdout.write(`${packageVersion()}\n`);
  return 0;
}

/** The code is loaded only now, for the cache to be of use. */
async function run(args: readonly string[], terminal: Terminal): Promise<number> {
  return await (await import("./program.ts")).main(args, terminal);
}

/** The code that needs an unreadable path reports it. */
function stateOf(dir: string): Stats | undefined {
  try {
    return statSync(dir, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}
