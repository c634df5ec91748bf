import { useRef, useState } from "preact/hooks";
import type { ApiError } from "../../../../client/client.ts";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted } from "../../../../text/amounts.ts";
import { useApp, useMay, useNow, useResource, useStream } from "../../app/resource.ts";
import { Button } from "../../components/dialog.tsx";
import { ErrorNote } from "../../components/notes.tsx";
import { Table, VirtualList } from "../../components/table.tsx";
import { Ago, StatusBadge, TerminalLine, Visible } from "../../components/visible.tsx";
import { KeptLines } from "../../text/ansi.ts";
import { bytesOf, SessionTerminal } from "./session-terminal.tsx";

type Session = AnswerOf<"sessions.show">;
type Command = AnswerOf<"sessions.command">;

const EVERY_MS = 1500;
const ROW_PX = 19;
const MAX_ROWS = 24;
const SHELL = "if command -v bash >/dev/null; then exec bash; else exec sh; fi";

/** What was started in a session: each with its output as it comes, or at a terminal. */
export function SessionCommands({
  session,
  shown,
  place,
}: {
  readonly session: Session;
  readonly shown: string | undefined;
  /** The address of this page with a command. */
  readonly place: (command: string) => string;
}) {
  const { client } = useApp();
  const may = useMay("run") && session.tools.includes("exec");
  const now = useNow();
  const [line, setLine] = useState("");
  const [fault, setFault] = useState<ApiError | null>(null);
  const { data, error, reload } = useResource("sessions.commands", { session: session.id }, { everyMs: EVERY_MS });
  const commands = data?.commands.toReversed() ?? [];
  const command = commands.find(({ id }) => id === shown);
  const start = async (order: { command: string; input?: boolean; terminal?: typeof FIRST_SIZE }): Promise<void> => {
    setFault(null);
    try {
      const { id } = await client.call("sessions.start", { session: session.id, ...order });
      setLine("");
      reload();
      location.hash = place(id);
    } catch (error) {
      setFault(error as ApiError);
    }
  };
  return (
    <section class="part" aria-labelledby="commands-title">
      <div class="part-head">
        <h2 id="commands-title">Commands</h2>
      </div>
      {may ? (
        <form
          class="command-line"
          onSubmit={(event) => {
            event.preventDefault();
            if (line.trim() !== "") void start({ command: line });
          }}
        >
          <label>
            <span class="unseen">Command</span>
            <input
              data-search
              value={line}
              spellcheck={false}
              autoComplete="off"
              autoCapitalize="off"
              placeholder="npm test"
              disabled={session.isPaused}
              onInput={({ currentTarget }) => setLine(currentTarget.value)}
            />
          </label>
          <button type="submit" class="button button-primary" disabled={line.trim() === "" || session.isPaused}>
            Run
          </button>
          <Button disabled={session.isPaused} act={() => start({ command: SHELL, input: true, terminal: FIRST_SIZE })}>
            Open a terminal
          </Button>
        </form>
      ) : null}
      {fault === null ? null : <ErrorNote error={fault} />}
      {error === null ? null : <ErrorNote error={error} retry={reload} />}
      {command === undefined ? null : (
        <ShownCommand key={command.id} session={session} command={command} reload={reload} may={may} />
      )}
      {commands.length === 0 ? (
        <p class="quiet">Nothing was started yet.</p>
      ) : (
        <Table
          label="Commands"
          rows={commands}
          keyOf={({ id }) => id}
          linkOf={({ id }) => place(id)}
          columns={[
            {
              title: "Command",
              kind: "main",
              cell: (one) => <Visible text={one.isTerminal ? `terminal: ${one.command}` : one.command} max={200} />,
            },
            { title: "Status", cell: ({ status }) => <StatusBadge status={status} /> },
            { title: "Exit", kind: "number", isExtra: true, cell: (one) => one.signal ?? one.exitCode ?? "" },
            { title: "Began", kind: "number", cell: ({ startedAt }) => <Ago at={startedAt} now={now} /> },
          ]}
        />
      )}
    </section>
  );
}

const FIRST_SIZE = { columns: 100, rows: 30 };

function ShownCommand({
  session,
  command,
  reload,
  may,
}: {
  readonly session: Session;
  readonly command: Command;
  readonly reload: () => void;
  readonly may: boolean;
}) {
  const { client, notify } = useApp();
  const isRunning = command.status === "running";
  const signal = async (name: "SIGINT" | "SIGKILL"): Promise<void> => {
    await client
      .call("sessions.signal", { session: session.id, command: command.id, signal: name })
      .catch((fault: ApiError) => notify(fault.message, "bad"));
    reload();
  };
  return (
    <section class="shown-command" aria-label="Output">
      <div class="part-head">
        <code class="shown-line">
          <Visible text={command.command} max={400} />
        </code>
        <span class="actions">
          <StatusBadge status={command.status} />
          {isRunning && may ? (
            <>
              {command.isTerminal ? null : <Button act={() => signal("SIGINT")}>Interrupt</Button>}
              <Button kind="danger" act={() => signal("SIGKILL")}>
                Kill
              </Button>
            </>
          ) : null}
        </span>
      </div>
      {command.isTerminal ? (
        <SessionTerminal session={session.id} command={command.id} isLive={isRunning && may} ended={reload} />
      ) : (
        <CommandOutput session={session.id} command={command} ended={reload} />
      )}
    </section>
  );
}

/** Both streams in the order in which they came, from the oldest that is kept. */
function CommandOutput({
  session,
  command: { id, status },
  ended,
}: {
  readonly session: string;
  readonly command: Command;
  readonly ended: () => void;
}) {
  const { client } = useApp();
  const kept = useRef(new KeptLines());
  const missing = useRef(0);
  const { error } = useStream(
    async ({ signal, changed }) => {
      const how = { signal, retries: Number.POSITIVE_INFINITY };
      for await (const { event } of client.follow("sessions.output", { session, command: id }, how)) {
        if (event.type === "ended") ended();
        if (event.type !== "printed") continue;
        missing.current += event.missingBytes;
        kept.current.push(bytesOf(event.base64));
        changed();
      }
    },
    [client, session, id, ended],
  );
  const { count, dropped } = kept.current;
  const isCut = missing.current > 0 || dropped > 0;
  return (
    <>
      {error === null ? null : <ErrorNote error={error} />}
      {count === 0 ? (
        <p class="quiet terminal-empty">
          {status === "running" ? "It has printed nothing yet." : "It printed nothing."}
        </p>
      ) : (
        <div class="terminal" style={{ height: `min(60vh, ${Math.min(MAX_ROWS, count) * ROW_PX + 14}px)` }}>
          <VirtualList
            count={count}
            rowPx={ROW_PX}
            row={(index) => <TerminalLine line={kept.current.at(index)} />}
            label="What it prints"
            role="log"
            stick
          />
        </div>
      )}
      <p class="quiet">
        {isCut ? "Only the end is shown. " : ""}
        {counted(count, "line")}
      </p>
    </>
  );
}
