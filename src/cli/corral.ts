#!/usr/bin/env node
import { statSync, writeSync } from "node:fs";
import { extname, join } from "node:path";
import { packageVersion } from "../operations/package-version.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { statePaths } from "../state/state-paths.ts";
import { compiledFiles, isOwn } from "./compiled-files.ts";

/** As `engines` of the package says. An older one fails somewhere in the middle, over words that it does not know. */
const OLDEST_NODE = [22, 13] as const;

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  process.stderr.write(
    `corral: Node ${OLDEST_NODE.join(".")} or newer is needed, and this is ${process.versions.node}\n`,
  );
  process.exit(1);
}

const args = process.argv.slice(2);
if (!isVersionPrinted(args)) void program().then(({ start }) => start(args));

/** Scripts ask for it often, and it needs no parser. If it cannot be written, the parser prints it again, and says why. */
function isVersionPrinted([first]: readonly string[]): boolean {
  if (first !== "--version" && first !== "-V") return false;
  try {
    writeSync(1, `${packageVersion()}\n`);
    return true;
  } catch {
    return false;
  }
}

type Program = typeof import("./started.ts");

/** The rest of the command line. As source, Node loads it; the build has it in few files, next to this one. */
async function program(): Promise<Program> {
  if (extname(import.meta.filename) === ".ts") return await import("./started.ts");
  return compiledFiles(import.meta.dirname, keptIn(args[0]))("./started.cjs") as Program;
}

/** Where this version of Node keeps what it compiled for a command: in the state directory, if that is there and no other user can write in it. */
function keptIn(command = ""): string | null {
  const stateDir = stateDirFrom(process.env);
  try {
    if (!isOwn(statSync(stateDir))) return null;
  } catch {
    // What makes it gives it its mode. The code that needs an unreadable path reports it.
    return null;
  }
  // What is no command, or a word of a user, fails, and then nothing is kept.
  const name = /^[a-z]{1,20}$/.test(command) ? command : "other";
  return join(statePaths(stateDir).compiled, `${process.version}-${process.arch}`, name);
}
