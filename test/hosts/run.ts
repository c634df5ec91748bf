/**
 * `npm run test:hosts [NAME…]`: what holds on the hosts that users have. Starts an Engine of each in a root directory of its own, as root, and
 * runs the checks as root and as an ordinary user of the group docker. `--check TEXT` runs those of which the name contains it, `--write` puts
 * the table into docs/hosts.md. `--bench ARGUMENTS` measures there instead, and prints what `npm run bench -- ARGUMENTS` does; `--verify ARGUMENTS` prints what
 * `corral verify ARGUMENTS` says there. Exit status 1 if something does not hold.
 */
import { execFileSync } from "node:child_process";
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CHECKS, type Outcome, outcomeOf } from "./checks.ts";
import { HOSTS, type Host, rootDirectory, USER } from "./hosts.ts";
import { startMachine } from "./machine.ts";
import { type RunningHost, ran, startHost } from "./second-engine.ts";

const ROOT = join(import.meta.dirname, "../..");
const PAGE = join(ROOT, "docs/hosts.md");
const CACHE = process.env.CORRAL_HOSTS_CACHE ?? "/var/cache/corral-hosts";
const IMAGES = ["corral/base", "corral/documents", "corral/node", "corral/python", "corral/debian:bookworm"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    write: { type: "boolean", default: false },
    check: { type: "string", default: "" },
    bench: { type: "string" },
    verify: { type: "string" },
  },
});
const unknown = positionals.filter((name) => HOSTS.every((host) => host.name !== name));
if (unknown.length > 0)
  giveUp(`unknown: ${unknown.join(", ")}. The hosts are ${HOSTS.map(({ name }) => name).join(", ")}.`);
if (process.getuid?.() !== 0) giveUp("a second Engine needs root.");
const makesNone = values.bench !== undefined || values.verify !== undefined;
if (values.write && makesNone) giveUp("--write is for checks, and --bench and --verify make none.");
if (values.write && values.check !== "") giveUp("--write needs all checks: a row of the table has each of them.");

const checks = CHECKS.filter(({ name }) => name.includes(values.check));
if (checks.length === 0)
  giveUp(`--check: no check has "${values.check}" in its name: ${CHECKS.map(({ name }) => name).join("; ")}.`);
const packed = await pack();
const lines: string[] = [];
/** For each host and user, a reason and the checks that have it. */
const reasonsOf = new Map<string, string[]>();
const notes: string[] = [];
let holds = true;
for (const host of HOSTS.filter(({ name }) => positionals.length === 0 || positionals.includes(name)))
  await tryHost(host).catch((error: Error) => couldNotTry(host, error));
if (makesNone) process.exit(holds ? 0 : 1);
notes.push(...[...reasonsOf].map(([note, names]) => note.replace("CHECKS", names.join("; "))));
const table = [
  `| ${["host", "user", "versions", ...checks.map(({ name }) => name)].join(" | ")} |`,
  `|${" - |".repeat(checks.length + 3)}`,
];
process.stdout.write(`\n${[...table, ...lines].join("\n")}\n\n${notes.join("\n")}\n`);
if (values.write) write();
process.exit(holds ? 0 : 1);

async function tryHost(host: Host): Promise<void> {
  const began = Date.now();
  const say = (text: string): void => void process.stderr.write(`hosts: ${host.name}: ${text}\n`);
  say(`root directory of ${host.suite}`);
  const root = await rootDirectory(host, CACHE);
  say("its Engine, and the images");
  const request = { root, cache: CACHE, packed, images: IMAGES };
  await using running = await (host.isMachine === true ? startMachine(host, request) : startHost(host, request));
  const version = async (...command: string[]): Promise<string> => (await running.run("root", command)).output.trim();
  const versions = [
    await version("docker", "info", "--format", "{{.ServerVersion}}, {{.Driver}}, control groups v{{.CgroupVersion}}"),
    ...(await Promise.all(
      ["runc", "crun"].map(async (name) => `${name} ${versionIn(await version(name, "--version"))}`),
    )),
  ];
  if (values.bench !== undefined) return await measure(running, versions);
  if (values.verify !== undefined) return await verify(running, versions, values.verify);
  for (const user of ["root", USER]) {
    const shown: string[] = [];
    for (const check of checks) {
      const outcome = await outcomeOf(host, running, check, user);
      say(`${user}: ${check.name}: ${outcome.shown}`);
      noted(host.name, user, check.name, outcome);
      shown.push(outcome.shown);
    }
    lines.push(`| ${[host.name, user, versions.join(", "), ...shown].join(" | ")} |`);
  }
  say(`took ${Math.round((Date.now() - began) / 1000)} s`);
}

/** What the checkout's bench says there, as root. */
async function measure(running: RunningHost, versions: readonly string[]): Promise<void> {
  const bench = ["node", "/corral/bench/run.ts", ...(values.bench ?? "").split(" ")];
  const { status, output } = await running.run("root", bench, { NODE_COMPILE_CACHE: "/tmp/compiled" });
  if (status !== 0) holds = false;
  process.stdout.write(`${versions.join(", ")}\n${output}`);
}

/** What its cells hold, of each driver. */
async function verify(running: RunningHost, versions: readonly string[], given: string): Promise<void> {
  process.stdout.write(`${versions.join(", ")}\n`);
  for (const [user, driver] of [
    ["root", "engine"],
    ["root", "runc"],
    [USER, "engine"],
  ] as const) {
    const words = given.split(" ").filter((word) => word !== "");
    const { status, output } = await running.run(user, ["corral", "verify", ...words], { CORRAL_DRIVER: driver });
    if (status !== 0) holds = false;
    process.stdout.write(`${user}, ${driver}: ${status}\n${output}\n`);
  }
}

/** The other hosts are tried, and what was found before stays. */
function couldNotTry({ name }: Host, { message }: Error): void {
  holds = false;
  lines.push(`| ${[name, "–", "–", ...checks.map(() => "✗ not tried")].join(" | ")} |`);
  notes.push(`- ${name}: could not be tried: ${message.split("\n")[0]?.replaceAll("|", "\\|")}`);
}

function noted(host: string, user: string, check: string, { verdict, reasons }: Outcome): void {
  if (verdict === "fails") holds = false;
  for (const reason of reasons) {
    const key = `- ${host}, ${user}, CHECKS: ${reason.replaceAll("|", "\\|")}`;
    reasonsOf.set(key, [...(reasonsOf.get(key) ?? []), check]);
  }
}

/** The package, installed once in a folder of its own: each host sees it read-only. */
async function pack(): Promise<string> {
  execFileSync(process.execPath, [join(ROOT, "scripts/build.ts")], { stdio: "inherit" });
  const dir = join(CACHE, "packed");
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir, { recursive: true });
  await ran("npm", ["pack", "--ignore-scripts", "--pack-destination", dir], ROOT);
  const [tarball = ""] = globSync(join(dir, "*.tgz"));
  await ran("npm", ["install", "--prefix", dir, "--no-audit", "--no-fund", "--prefer-offline", tarball], dir);
  return dir;
}

/** Rows and notes of hosts that were not tried stay as they are. */
function write(): void {
  const page = readFileSync(PAGE, "utf8");
  const [before = "", rest = ""] = page.split("<!-- table -->\n");
  const after = rest.split("<!-- end of table -->\n")[1] ?? "";
  const tried = [...lines, ...notes];
  const all = HOSTS.flatMap(({ name }) => {
    const ofHost = (line: string): boolean => new RegExp(`^[|-] ${name}[ ,:]`).test(line);
    return tried.some(ofHost) ? tried.filter(ofHost) : rest.split("\n").filter(ofHost);
  });
  const [rows, reasons] = ["|", "-"].map((mark) => all.filter((line) => line.startsWith(mark)).join("\n"));
  const text = `${table.join("\n")}\n${rows}\n\n${reasons}`;
  writeFileSync(PAGE, `${before}<!-- table -->\n\n${text}\n\n<!-- end of table -->\n${after}`);
  execFileSync(process.execPath, [join(ROOT, "node_modules/@biomejs/biome/bin/biome"), "format", "--write", PAGE]);
}

function versionIn(text: string): string {
  return /version (\S+)/.exec(text)?.[1] ?? "–";
}

function giveUp(why: string): never {
  process.stderr.write(`hosts: ${why}\n`);
  process.exit(2);
}
