import type { Command } from "commander";
import { driver, examples, type Frame, json, policy, project, raw } from "./frame.ts";

export function addSession({ does, group, terminal }: Frame): void {
  const session = group("session");
  session.command.addHelpText("after", SESSION_HELP);
  const held = () => import("../session/held.ts");
  session
    .verb("start <worker>", "Start a session of a worker, which stays until it is stopped.")
    .addOption(project())
    .option("--name <name>", "call it this (the worker's name)")
    .option(
      "--idle <age>",
      "pause it after so long without a command or a request, such as 30m; the next one resumes it",
    )
    .option("--end-after <age>", "end it after so long without one, such as 1d")
    .option("--from <snapshot>", "go on from a snapshot, or from the last one of a session that has ended")
    .option("--port <port>", "a port that can be seen, beside those of the worker (can be repeated)", each)
    .addOption(policy())
    .addOption(driver())
    .addOption(json("print its name, id and socket as JSON"))
    .addHelpText("after", START_HELP)
    .action(
      does(async (worker, options) => {
        const { service } = terminal;
        if (service !== undefined) return await (await held()).startAt(service, worker, options, terminal);
        return await (await import("../session/hold.ts")).startHolder(worker, options, terminal);
      }),
    );
  session
    .verb("hold <worker>", "Hold a session in this process.", { hidden: true })
    .addOption(project())
    .requiredOption("--name <name>")
    .option("--idle <age>")
    .option("--end-after <age>")
    .option("--from <snapshot>")
    .option("--port <port>", "", each)
    .addOption(policy())
    .addOption(driver())
    .action(does(async (worker, options) => (await import("../session/hold.ts")).holdVerb(worker, options, terminal)));
  session
    .verb("ls [session]", "List the sessions that were started, or the commands of one.")
    .addOption(json())
    .action(does(async (name, options) => (await held()).listVerb(name, options, terminal)));
  const on = (usage: string, description: string): Command => session.verb(usage, description);
  on("exec <session> [words...]", "Run a command in a session; what follows `--` is the command.")
    .option("-i, --interactive", "give it the standard input")
    .option("-t, --tty", "run it at a terminal; implies -i")
    .option("--background", "print its id, and do not wait for it")
    .option("--cwd <dir>", "run it in this directory of the session")
    .option("--timeout <time>", "end it after so long, such as 30s")
    .addOption(raw())
    .addHelpText("after", EXEC_HELP)
    .action(does(async (name, words, options) => (await held()).execVerb(name, words, options, terminal)));
  on("shell <session>", "Open a shell in a session.").action(
    does(async (name) => (await held()).heldShellVerb(name, terminal)),
  );
  on("logs <session> <command>", "Print what a command in the background printed, each stream to its own.")
    .option("-f, --follow", "continue until it has ended")
    .addOption(raw())
    .action(does(async (name, id, options) => (await held()).logsVerb(name, id, options, terminal)));
  on("signal <session> <command> [signal]", "Signal a command and all that it has started (TERM).")
    .addOption(json())
    .action(does(async (name, id, signal, options) => (await held()).signalVerb(name, id, signal, options, terminal)));
  on("wait <session> <command>", "Wait for the end of a command in the background.")
    .addOption(json())
    .action(does(async (name, id, options) => (await held()).waitVerb(name, id, options, terminal)));
  on("put <session> <source> <path>", "Write a file or a folder into a session; - is standard input.")
    .addOption(json())
    .action(does(async (name, source, path, options) => (await held()).putVerb(name, source, path, options, terminal)));
  on("get <session> <path> [target]", "Read a file or a folder of a session; - is standard output.")
    .option("--max-bytes <size>", "refuse more than so much (half of what is free where it is written)")
    .action(does(async (name, path, target, options) => (await held()).getVerb(name, path, target, options, terminal)));
  on("ports <session>", "List the ports of a session, and what listens there.")
    .option("--link <port>", "print a link for a browser of this machine, which works once")
    .addOption(json())
    .action(does(async (name, options) => (await import("../session/ports.ts")).portsVerb(name, options, terminal)));
  on("forward <session> <ports>", "Forward a port of this machine, [LOCAL:]PORT, to one of a session.")
    .addHelpText("after", FORWARD_HELP)
    .action(does(async (name, ports) => (await import("../session/ports.ts")).forwardVerb(name, ports, terminal)));
  const layers = () => import("../session/snapshots.ts");
  on("snapshot <session> [name]", "Keep what a session wrote; what runs in it ends.")
    .addOption(json())
    .addHelpText("after", SNAPSHOT_HELP)
    .action(does(async (name, as, options) => (await layers()).snapshotVerb(name, as, options, terminal)));
  on("restore <session> <snapshot>", "Show what a snapshot has, in place of what was written since.").action(
    does(async (name, snapshot) => (await layers()).restoreVerb(name, snapshot, terminal)),
  );
  on("diff <session> <snapshot>", "List the differences between a session and a snapshot.")
    .addOption(json())
    .action(
      does(async (name, snapshot, options) => (await layers()).differencesVerb(name, snapshot, options, terminal)),
    );
  on("fork <session>", "Start another session from a session as it is now, or from a snapshot.")
    .addOption(project())
    .option("--name <name>", "call it this (required)")
    .option("--idle <age>", "pause it after so long without a command or a request, such as 30m")
    .option("--end-after <age>", "end it after so long without one, such as 1d")
    .addOption(json("print its name, id and socket as JSON"))
    .action(does(async (name, options) => (await layers()).forkVerb(name, options, terminal)));
  on("snapshots [session]", "List the snapshots of a project, or those of the worker of a session.")
    .addOption(project())
    .option("--rm <snapshot>", "remove it")
    .addOption(json())
    .action(does(async (name, options) => (await layers()).snapshotsVerb(name, options, terminal)));
  on("pause <session>", "Stop everything that runs in a session, until it is resumed.").action(
    does(async (name) => (await held()).pauseVerb(name, true, terminal)),
  );
  on("resume <session>", "Let a paused session continue.").action(
    does(async (name) => (await held()).pauseVerb(name, false, terminal)),
  );
  on("stop <session>", "End a session, and apply the changes for which there is consent.")
    .option("--discard", "apply and keep nothing of what it wrote in staged directories")
    .addOption(json("print the outcomes of its changes as JSON"))
    .action(does(async (name, options) => (await held()).endVerb(name, options, terminal)));
}

function each(raw: string, before: readonly string[] = []): string[] {
  return [...before, raw];
}

const FORWARD_HELP = `
It listens at 127.0.0.1, at LOCAL or any free port, which it
prints, until Ctrl-C. Programs of this machine can connect, as
what they find there is the session's. For a browser, prefer
\`corral session ports SESSION --link PORT\`, which keeps its
page apart from others.`;

const SNAPSHOT_HELP = `
It has the files of staged directories (\`stage: true\` of the
worker), and nothing of /tmp or of directories that are written
directly. With a name, it stays when the session has ended.
${examples("corral session snapshot dev installed")}`;

const SESSION_HELP = `
A session is named by its name or its id.
${examples(
  "corral session start web --name dev",
  "corral session exec dev --background -- npm run dev",
  "corral session exec dev -- npm test",
  "corral session put dev data.csv /work/data.csv",
  "corral session stop dev",
)}`;

const START_HELP = `
A process of its own holds it. Its container ends with that
process, and the process with the session. Questions wait in
the inbox: see \`corral approvals\`.`;

const EXEC_HELP = `
Commands run beside each other, and each ends alone. The
rules of the worker judge each as for the tool exec; without
--background it has the time and the output of a command of
the worker. -t has neither.

Exit status: the same as of corral run.`;
