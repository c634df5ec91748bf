#!/usr/bin/env node
import { fstatSync, readFileSync, statSync, writeSync } from "node:fs";
import { extname, join } from "node:path";
import { packageVersion } from "../declarations/place/package-root.ts";
import { stateDirFrom, statePaths } from "../state/state-dir.ts";
import { compiledFiles, isOwn, prepareShort } from "./compiled-files.ts";

/** As `engines` of the package says. An older one fails somewhere in the middle, over words that it does not know. */
const OLDEST_NODE = [22, 13] as const;

/** Of `/dev/null`, which is no terminal: major 1, minor 3. */
const DEV_NULL = 0x103;

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  process.stderr.write(
    `corral: Node ${OLDEST_NODE.join(".")} or newer is needed, and this is ${process.versions.node}\n`,
  );
  process.exit(1);
}

const args = process.argv.slice(2);
const text = knownText(args);
if (text === null || !isPrinted(text)) void program().then(({ start }) => start(args));

/** The version, or a help text that the build made. Programs ask for them often, and neither needs a parser. */
function knownText([first = "", second, ...more]: readonly string[]): string | null {
  if (first === "--version" || first === "-V") return `${packageVersion()}\n`;
  const name = isHelp(first) && second === undefined ? "corral" : isHelp(second) && more.length === 0 ? first : null;
  if (name === null || !/^[a-z]{1,20}$/.test(name)) return null;
  try {
    // At a terminal it is as wide as that.
    const { rdev } = fstatSync(1);
    if (rdev !== 0 && rdev !== DEV_NULL) return null;
    return readFileSync(join(import.meta.dirname, "help", `${name}.txt`), "utf8");
  } catch {
    // The source has none; what is no command has none.
    return null;
  }
}

function isHelp(word: string | undefined): boolean {
  return word === "--help" || word === "-h";
}

/** False if nothing could be written: then the parser prints it, and says why. */
function isPrinted(text: string): boolean {
  const bytes = Buffer.from(text);
  try {
    const length = writeSync(1, bytes);
    if (length < bytes.length) process.stdout.write(bytes.subarray(length));
    return true;
  } catch {
    return false;
  }
}

type Program = typeof import("./program.ts");

/** The rest of the command line. As source, Node loads it; the build has it in few files, next to this one. */
async function program(): Promise<Program> {
  prepareShort(args[0], args[1]);
  if (extname(import.meta.filename) === ".ts") return await import("./program.ts");
  return compiledFiles(import.meta.dirname, keptIn(args[0]))("program:program") as Program;
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
