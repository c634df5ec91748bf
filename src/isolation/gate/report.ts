import { decodedMountField } from "../../files/host/descriptor.ts";
import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { programOf } from "../plan/mounts.ts";
import { GATE_PATH, type Plan, SECRETS_PATH } from "../plan/plan.ts";

/** The line that opens the gate. Any other line, or the end of its input, ends the cell without running the worker. */
export const GO = "go\n";
/** What the gate prints when it was opened. Whatever is printed after it is the worker's. */
export const BEGUN = "== begun\n";
/** Asks the init process to say how the worker ended. It means 2, and no worker would write it like this. */
const TELLING = "02";
/** Exit codes of a gate that did not run the worker's command. */
const GATE_SHUT = 125;

/**
 * Makes the files of secrets from lines of its input, one for each name of `$1`. The shell itself reads and writes them: no value
 * is an argument, and none is in the environment of a process. What is there already is never written to. The Engine gives
 * the directory the mode that it has in the image.
 */
export const FILL_SECRETS = `
set -fC; umask 377; IFS=' '
[ -z "$1" ] || "$0" chmod 700 ${SECRETS_PATH} || exit 1
for name in $1; do IFS= read -r value && printf %s "$value" > ${SECRETS_PATH}/"$name" || exit 1; done`;

/** The lines that {@link FILL_SECRETS} reads. A value has no line break. */
export function secretLines(names: readonly string[], values: ReadonlyMap<string, string>): Buffer {
  return Buffer.from(names.map((name) => `${values.get(name) ?? ""}\n`).join(""));
}

/**
 * Runs between the start of a cell and the worker's first instruction, in Corral's own static busybox, so
 * that an image needs no shell and has no say: it reports what the cell is, waits for one line, and becomes the
 * command. `read` takes no byte beyond that line; what follows on stdin is the worker's input (docs/architecture.md,
 * fact: gate-reads-one-line).
 *
 * The worker's starting directory is entered here, with the worker's own rights: the Engine would create a missing one,
 * as root, in a granted directory.
 *
 * The command is looked up by the script, because this shell would prefer its own applets to the image's programs.
 *
 * One program prints what the kernel reports: this shell would need a system call for each byte. It is a part of the gate's binary, in a
 * child of this shell that starts nothing: the kernel gives both the identity and the rights that it gives to the worker.
 *
 * Only variables that begin with `corral_gate_` are set outside of subshells: others would take the place of variables of the
 * worker's environment. Variables that this shell adds are unset.
 */
const SCRIPT = filledIn(textBeside(import.meta.url, "gate.sh"), {
  SECRETS_PATH,
  GATE_SHUT,
  FILL_SECRETS,
  BEGUN: BEGUN.trim(),
  TELLING,
});

/** The names of secrets whose values the gate takes. With a keeper, a command takes them: it is another user than the keeper. */
export function gateSecrets({ keeper, secrets = [] }: Plan): readonly string[] {
  return keeper === undefined ? secrets : [];
}

/**
 * The container's whole argument list: the gate, the mount points to identify, where to begin, the names of secrets, the program of
 * the worker, which is looked up, and the command.
 */
export function gateCommand(plan: Plan): string[] {
  const paths = plan.mounts.map((mount) => mount.path).join("\n");
  // Each command of a session enters its own directory, for which a keeper may have too few rights.
  const isSession = plan.keeper !== undefined || plan.startsCommands === true;
  const directory = isSession ? "/" : plan.workingDir;
  const secrets = gateSecrets(plan).join(" ");
  return [GATE_PATH, "sh", "-c", SCRIPT, GATE_PATH, paths, directory, secrets, programOf(plan), ...plan.command];
}

/**
 * The environment of a container's first process. The Engine's init, `tini`, ends with 128+n if a signal has ended the worker, as if that
 * had ended so itself; with this variable it prints which, as its last words (docs/facts.md, fact: last-words-of-init). The gate takes it away from the
 * worker, so where commands of a session would have it, it is not there.
 */
export function gateEnvironment({ env, keeper, serves, startsCommands }: Plan): Readonly<Record<string, string>> {
  const hasInit = serves !== true && startsCommands !== true && keeper === undefined;
  return hasInit && env.TINI_VERBOSITY === undefined ? { ...env, TINI_VERBOSITY: TELLING } : env;
}

/** What a cell reports of itself before its worker runs. Corral's own binary writes it; no code of the image has run yet. */
export interface GateReport {
  readonly mounts: readonly ReportedMount[];
  /** Fields of /proc/self/status, by name. */
  readonly status: ReadonlyMap<string, string>;
  /** What /proc/version has. */
  readonly kernel: string;
  /** True if that is not this machine's, and the parts that its kernel cannot show were seen from outside. */
  readonly ownKernel?: true;
  /** Limits of /proc/self/limits, by the kernel's names; both values if the soft one, which a process may raise, differs. */
  readonly limits: ReadonlyMap<string, string>;
  readonly interfaces: readonly string[];
  /** Control group files that could be read, by their name below /sys/fs/cgroup. */
  readonly cgroup: ReadonlyMap<string, string>;
  /** The kernel's numbers of namespaces, by their path below /proc. */
  readonly namespaces: ReadonlyMap<string, string>;
  /** Swap of the whole machine, in kilobytes; null if not reported. */
  readonly swapKilobytes: number | null;
  /** `device:inode` of each mount point. */
  readonly identities: ReadonlyMap<string, string>;
  /** True if the worker's starting directory exists and the worker may enter it. */
  readonly directoryEntered: boolean;
  /** Parts that no gate writes: some of the text comes from the image, which could add sections of its own. */
  readonly flaws: readonly string[];
  /** True if something is in the place of secrets before they are: the Engine copies what the image has there. */
  readonly secretsTaken: boolean;
  /** The program that the worker's command names, absolute in the cell; empty if the image does not have it. */
  readonly command: string;
  /** What the first line of a script names, if that is missing, with its carriage return; else null. */
  readonly interpreter: string | null;
}

export interface ReportedMount {
  readonly path: string;
  /** What of its file system is seen there: a path in that. */
  readonly root: string;
  readonly readOnly: boolean;
  readonly type: string;
  readonly options: readonly string[];
  /** Options of the file system itself, such as a tmpfs's size. */
  readonly superOptions: readonly string[];
}

export const END_OF_REPORT = "\n== end\n";
/** A report has some thirty lines of mounts; anything larger is not a report. */
export const MAX_REPORT_BYTES = 1_000_000;

/** Reads a complete report (up to and including {@link END_OF_REPORT}). A missing section is empty, which no check accepts. */
export function parseGateReport(text: string): GateReport {
  const sections = new Map<string, string[]>();
  const flaws: string[] = [];
  let lines: string[] = [];
  for (const line of text.split("\n")) {
    const title = titleOf(line);
    if (title !== null) {
      lines = [];
      if (sections.has(title)) flaws.push(`a second section ${title}`);
      else if (!SECTIONS.has(title)) flaws.push("a section that the gate does not write");
      sections.set(title, lines);
    } else if (line !== "") lines.push(line);
  }
  if ((sections.get("command")?.length ?? 0) > 1) flaws.push("a command on several lines");
  const section = (name: string): readonly string[] => sections.get(name) ?? [];
  return {
    mounts: section("mountinfo").map(parseMount),
    status: new Map([...section("status").map((line) => splitAt(line, ":")), ...privilegesIn(section("ulimits"))]),
    kernel: section("version").join("\n"),
    limits: new Map([...section("limits").slice(1).map(parseLimit), ...limitsIn(section("ulimits"))]),
    interfaces: section("dev")
      .slice(2)
      .map((line) => splitAt(line, ":")[0]),
    cgroup: new Map(section("cgroup").map((line) => splitAt(line, " "))),
    namespaces: new Map(
      section("namespaces")
        .map((line) => splitAt(line, " "))
        .map(([id, path]) => [path, id]),
    ),
    swapKilobytes: swapOf(section("meminfo")),
    identities: new Map(
      section("identities")
        .map((line) => /^(\S*) (.*)$/.exec(line) ?? [])
        // A name may end with a blank.
        .map(([, id = "", path = ""]) => [path, id]),
    ),
    directoryEntered: section("directory").join("\n") === "entered",
    secretsTaken: sections.has("secrets"),
    command: section("command")[0] ?? "",
    // The gate writes it after a space: no such line is a title.
    interpreter: section("interpreter")[0]?.slice(1) ?? null,
    flaws,
  };
}

const SECTIONS: ReadonlySet<string> = new Set(
  "mountinfo status limits dev meminfo version cgroup ulimits namespaces identities directory command interpreter secrets end".split(
    " ",
  ),
);

/** `== name` as the gate's script writes it, and `==> /proc/self/name <==` as its `head` does. */
function titleOf(line: string): string | null {
  if (line.startsWith("== ")) return line.slice(3);
  return /^==> \/proc\/(?:\w+\/)?(\w+) <==$/.exec(line)?.[1] ?? null;
}

/** `SwapTotal:             0 kB` among others. */
function swapOf(meminfo: readonly string[]): number | null {
  const told = meminfo.map((line) => /^SwapTotal:\s+(\d+) kB$/.exec(line)?.[1]).find((found) => found !== undefined);
  return told === undefined ? null : Number(told);
}

/** Mounts as a file `mountinfo` of the kernel lists them. */
export function parseMounts(text: string): ReportedMount[] {
  return text.split("\n").flatMap((line) => (line === "" ? [] : parseMount(line)));
}

const BLOCK_BYTES = 512;

/** What the shell itself says of its limits, in lines: soft and hard, of open files and of the size of a file, which it has in blocks. */
function limitsIn([softFiles, hardFiles, softSize, hardSize]: readonly string[]): [string, string][] {
  if (softFiles === undefined || softSize === undefined) return [];
  const bytes = (blocks = ""): string => (/^\d+$/.test(blocks) ? String(Number(blocks) * BLOCK_BYTES) : blocks);
  return [
    ["Max open files", softFiles === hardFiles ? softFiles : `${softFiles}, at most ${hardFiles}`],
    ["Max file size", softSize === hardSize ? bytes(softSize) : `${bytes(softSize)}, at most ${bytes(hardSize)}`],
  ];
}

function privilegesIn(ulimits: readonly string[]): [string, string][] {
  return ulimits.flatMap((line) => {
    const is = /^no_new_privs: ([01])$/.exec(line)?.[1];
    return is === undefined ? [] : [["NoNewPrivs", is] as [string, string]];
  });
}

/** `36 35 98:0 /root /mount/point ro,noatime master:1 - ext4 /dev/vda rw` (proc(5)). */
function parseMount(line: string): ReportedMount {
  const [before = "", after = ""] = line.split(" - ");
  const fields = before.split(" ");
  const options = (fields[5] ?? "").split(",");
  return {
    path: decodedMountField(fields[4] ?? ""),
    root: decodedMountField(fields[3] ?? ""),
    readOnly: options.includes("ro"),
    type: after.split(" ")[0] ?? "",
    options,
    superOptions: (after.split(" ")[2] ?? "").split(","),
  };
}

/** `Max open files            1024                 1024                 files`: name, soft limit, hard limit. */
function parseLimit(line: string): [string, string] {
  const [name = "", soft = "", hard = ""] = line.split(/\s{2,}/);
  return [name, soft === hard ? soft : `${soft}, at most ${hard}`];
}

function splitAt(line: string, separator: string): [string, string] {
  const at = line.indexOf(separator);
  return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
}
