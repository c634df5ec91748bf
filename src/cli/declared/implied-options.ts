import { realpath, stat } from "node:fs/promises";
import { basename, isAbsolute, relative, resolve } from "node:path";
import { mountNameFault, nameFault } from "../../declarations/terms/names.ts";
import {
  IMPLIED_POLICY,
  type ImpliedPath,
  type ImpliedProject,
  impliedName,
} from "../../operations/implied-project.ts";
import { shellWord } from "../../platform/shell-word.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { ImpliedOptions } from "./given-options.ts";
import { namedPath } from "./named-path.ts";

/** The image without `--image`. */
const BASE_IMAGE = "corral/base";

/** `command`: null for a session, which gets a shell. @throws UsageError */
export async function impliedProject(
  options: ImpliedOptions,
  command: readonly string[] | null,
  cwd: string,
): Promise<ImpliedProject> {
  const { image = BASE_IMAGE, ro = [], rw = [], allow = [], packages = [], policy = IMPLIED_POLICY, save } = options;
  if (options.apply && options.approve !== undefined) throw new UsageError("use either --apply or --approve");
  if (command?.[0] === "") throw new UsageError("the command after -- has an empty name");
  const fault = save === undefined ? null : nameFault(save);
  if (fault !== null) throw new UsageError(`--save ${printableLine(save ?? "", 80)}: a worker's name ${fault}`);
  const paths: ImpliedPath[] = [];
  for (const [mode, raws] of [["ro", ro] as const, ["rw", rw] as const])
    for (const raw of raws) paths.push(await impliedPath(raw, mode, paths, cwd));
  return {
    name: save ?? (command === null ? "session" : impliedName(command)),
    image,
    command: command ?? ["sh"],
    paths,
    allow,
    packages,
    policy,
    approval: options.apply ? "approve_all" : (options.approve ?? "interactive"),
    runsCommands: command === null,
  };
}

async function impliedPath(
  raw: string,
  mode: "ro" | "rw",
  others: readonly ImpliedPath[],
  cwd: string,
): Promise<ImpliedPath> {
  const told = `--${mode} ${printableLine(raw, 200)}`;
  if (raw === "") throw new UsageError(`--${mode} names a file or a folder, and its value is empty`);
  const named = await namedPath(raw, cwd);
  const { path } = named;
  const full = resolve(cwd, path);
  const real = await realpath(full).catch(() => full);
  const kind = await stat(full).then(
    (found) => (found.isDirectory() ? "folder" : "file"),
    () => "missing",
  );
  const isInside = !relative(cwd, full).startsWith("..") && !isAbsolute(relative(cwd, full)) && full !== cwd;
  const isMade = mode === "rw" && isInside && kind !== "file";
  if (kind === "missing" && mode === "ro") throw new UsageError(`${told}: there is no such file or folder`);
  if (kind === "missing" && !isMade)
    throw new UsageError(`${told}: there is no such folder; only one below the working directory is made`);
  // The whole file system has no name; that no worker gets it is said by the rules for all mounts.
  const name = named.name ?? (basename(real) || "host");
  const fault = mountNameFault(name);
  const advice = `write PATH=NAME, such as --${mode} ${shellWord(printableLine(path, 200))}=${mode === "ro" ? "in" : "out"}`;
  if (fault !== null) throw new UsageError(`${told}: the name ${JSON.stringify(name)} ${fault}; ${advice}`);
  if (others.some((other) => other.name === name))
    throw new UsageError(`${told}: another --ro or --rw has the name ${name}; ${advice}`);
  return { name, path, mode, create: isMade, file: kind === "file" ? basename(real) : null };
}
