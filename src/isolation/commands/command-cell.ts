import { within } from "../../platform/within.ts";
import { COMMANDS_PATH, GATE_PATH } from "../plan/plan.ts";
import type { Cell, SessionCell } from "../port/cell.ts";
import type { Start, StartRequest } from "../port/driver.ts";
import { CommandServer, commandsDir } from "./command-server.ts";

/**
 * What a session's first process reads first. It is a shell that reads its script from its standard input, so each request
 * is a line of shell that Corral writes, with every word in quotes, and any number of bytes of it is read at once. Its answers
 * are lines on its standard output: `begun NAME PID KILLS`, `started NAME JOB`, `refused NAME`, `ended NAME CODE KILLS`,
 * `signalled NAME yes|no`, `counted NAME KILLS`. `KILLS` counts the processes that the kernel has killed for memory.
 *
 * It has the worker's own rights, because no process in a cell can change its user. The worker cannot influence it: it is process
 * 1, which no signal from inside its namespace ends or stops; its binary can be executed and not read, so the kernel lets
 * no process trace it or open its descriptors; the seccomp profile lets no process change its limits, priority or processors;
 * and commands inherit none of its descriptors. It never waits for a command, so it notices the end of its input at once, and
 * the cell ends with its orchestrator.
 *
 * A shell cannot start a command in the background as it would start it in the foreground: in the background it ignores SIGINT
 * and SIGQUIT, and nothing can undo that. So it starts the command as the first part of a pipeline in the foreground. The pipe
 * behind the second part cannot be made, because no more descriptors are allowed at that moment: the shell gives the pipeline up,
 * and does not wait for what it has started. That is a job of its own then, with the lowest number that is free
 * (docs/architecture.md, fact: shell-in-the-background).
 *
 * A fork may fail, if the cell has as many processes as its limit allows: then there is no such job.
 */
const SERVER_SCRIPT = `exec 2> /dev/null 9>&1
umask 022
corral_gate=${GATE_PATH}
corral_descriptors=$(ulimit -S -n)
corral_oom_kills() {
  corral_kills=-
  for corral_file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$corral_file" ] || continue
    while read -r corral_word corral_value; do [ "$corral_word" = oom_kill ] && corral_kills=$corral_value; done < "$corral_file"
  done
}
corral_find() {
  set -f
  IFS=:
  for corral_dir in $corral_path; do [ -f "$corral_dir/$1" ] && [ -x "$corral_dir/$1" ] && corral_found=$corral_dir/$1 && break; done
  set +f
  unset IFS
}
corral_command() {
  ulimit -S -n "$corral_descriptors"
  corral_name=$1 corral_in=$2 corral_cwd=$3 corral_path=$4
  shift 4
  exec 3< "$corral_in" 4> "${COMMANDS_PATH}/$corral_name.out" 5> "${COMMANDS_PATH}/$corral_name.err"
  read -r corral_pid corral_word < /proc/self/stat
  corral_oom_kills
  echo "begun $corral_name $corral_pid $corral_kills" >&9
  exec <&3 >&4 2>&5 3<&- 4>&- 5>&- 9>&-
  cd -- "$corral_cwd" 2> /dev/null || {
    if [ -d "$corral_cwd" ]; then echo "$corral_cwd: Permission denied"; elif [ -e "$corral_cwd" ]; then echo "$corral_cwd: Not a directory"; else echo "$corral_cwd: No such file or directory"; fi >&2
    exit 126
  }
  corral_found=$1
  case $1 in
  */*)
    if [ ! -e "$1" ]; then echo "$1: not found" >&2; exit 127; fi
    if [ -d "$1" ] || [ ! -x "$1" ]; then echo "$1: Permission denied" >&2; exit 126; fi
    ;;
  *)
    corral_found=
    corral_find "$1"
    if [ -z "$corral_found" ] && [ "$1" = sh ]; then
      shift
      corral_become "$corral_gate" sh "$@"
    fi
    if [ -z "$corral_found" ]; then echo "$1: command not found" >&2; exit 127; fi
    ;;
  esac
  shift
  corral_become "$corral_found" "$@"
}
corral_run() {
  corral_job=1
  while eval '[ -n "$corral_name_'$corral_job'" ]'; do corral_job=$((corral_job + 1)); done
  ulimit -S -n 5
  command eval 'corral_command "$@" | : | :'
  ulimit -S -n "$corral_descriptors"
  if kill -0 %$corral_job; then
    eval corral_name_$corral_job=$1
    echo "started $1 $corral_job"
  else echo "refused $1"; fi
}
corral_take() {
  eval corral_name='$corral_name_'$1
  [ -n "$corral_name" ] || return
  eval corral_name_$1=
  wait %$1
  corral_code=$?
  corral_oom_kills
  echo "ended $corral_name $corral_code $corral_kills"
}
corral_look() {
  jobs -p > /dev/null
  kill -0 "$2" || corral_take "$1"
}
corral_signal() {
  kill -"$1" -1
  corral_left=no
  if [ "$1" = KILL ]; then
    corral_tries=0
    while
      jobs -p > /dev/null
      set -- "$1" "$2" "$3" /proc/[0-9]*
      [ $# -gt 4 ]
    do
      corral_tries=$((corral_tries + 1))
      if [ "$corral_tries" -gt 320 ]; then corral_left=yes; break; fi
      if [ "$corral_tries" -gt 20 ]; then command eval '"$corral_gate" usleep 10000'; fi
      kill -KILL -1
    done
    corral_job=1
    while [ "$corral_left" = no ] && [ "$corral_job" -le "$3" ]; do
      corral_take "$corral_job"
      corral_job=$((corral_job + 1))
    done
  fi
  echo "signalled $2 $corral_left"
}
corral_count() {
  corral_oom_kills
  echo "counted $1 $corral_kills"
}
`;

/** How long to wait for the end of a cell in which nothing can be started any more. */
export const CELL_END_MS = 5000;

/** What a driver has made of a request, with the rest of what it needs itself. */
type Started<Parts> = (Parts & { readonly ok: true; readonly cell: Cell }) | Extract<Start, { ok: false }>;

export interface CommandDriver<Parts> {
  /** Starts and verifies the cell, and releases nothing. */
  start(request: StartRequest): Promise<Started<Parts>>;
  /** Writes to the first process of the cell. */
  write(parts: Parts, text: string): void;
  /** Starts a command at a terminal, as the worker's user. */
  execAtTerminal(parts: Parts & { readonly cell: Cell }, server: CommandServer): SessionCell["exec"];
}

/** Starts a cell whose first process starts commands. It is released at once, and then waits for them. */
export async function startCommandCell<Parts>(
  request: StartRequest,
  driver: CommandDriver<Parts>,
): Promise<Start<SessionCell>> {
  let server: CommandServer | undefined;
  const onOutput: StartRequest["onOutput"] = (stream, chunk) => {
    if (stream === "stdout") server?.add(chunk);
  };
  const started = await driver.start({ ...request, onOutput });
  if (!started.ok) return started;
  const { cell } = started;
  const write = (text: string): void => driver.write(started, text);
  server = new CommandServer({ dir: commandsDir(request.plan), write, exit: cell.exit });
  cell.release(Buffer.from(SERVER_SCRIPT));
  return { ok: true, cell: commandCell(cell, server, driver.execAtTerminal(started, server)) };
}

function commandCell(cell: Cell, server: CommandServer, execAtTerminal: SessionCell["exec"]): SessionCell {
  return {
    ...cell,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await cell[Symbol.asyncDispose]();
    },
    exec: (request) => (request.tty === undefined ? server.exec(request) : execAtTerminal(request)),
    async signalAll(signal) {
      const gone = await server.signalAll(signal);
      if (!gone && signal === "SIGKILL")
        await within(
          cell.kill("SIGKILL").catch(() => {}),
          CELL_END_MS,
        );
      return gone;
    },
  };
}
