import type { ComponentChildren } from "preact";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { durationText, roughBytesText, words } from "../../../../text/amounts.ts";
import { MoreItems } from "../../components/notes.tsx";
import { Badge, Visible } from "../../components/visible.tsx";

type ExplainedRun = AnswerOf<"workers.explain">["tree"];
type ExplainedSandbox = NonNullable<ExplainedRun["sandbox"]>;
type Mount = ExplainedSandbox["mounts"][number];
type Narrowing = ExplainedRun["narrowings"][number];

/** More below one worker are not drawn: a tree of calls can branch without end. */
const MAX_CALLS = 50;
const MAX_LISTED = 40;

/** One worker of the picture, and below it those that it may call. */
export function ExplainedCell({ run }: { readonly run: ExplainedRun }) {
  const { worker, sandbox, narrowings, plan, refused, agent, notes, calls } = run;
  return (
    <li class="cell-branch">
      <article class={refused === null ? "cell" : "cell cell-refused"}>
        <header class="cell-head">
          <h2>
            <Visible text={worker} max={80} />
          </h2>
          {refused === null ? null : <Badge tone="bad">would be refused</Badge>}
          {agent === null ? null : <Badge>agent</Badge>}
          <code class="quiet">
            <Visible text={agent?.model ?? plan?.image.name ?? ""} max={80} />
          </code>
        </header>
        {refused === null ? null : (
          <ul class="cell-refusals">
            {refused.slice(0, MAX_LISTED).map(({ code, message }) => (
              <li key={message}>
                <code>{code}</code> <Visible text={message} max={600} />
              </li>
            ))}
            <MoreItems count={refused.length - MAX_LISTED} what="refusal" />
          </ul>
        )}
        {sandbox === null ? null : <Contents sandbox={sandbox} narrowings={narrowings} tools={agent?.tools ?? null} />}
        {notes.length === 0 ? null : (
          <ul class="cell-notes quiet">
            {notes.map((note) => (
              <li key={note}>
                <Visible text={note} max={500} />
              </li>
            ))}
          </ul>
        )}
      </article>
      {calls.length === 0 ? null : (
        <ol class="cells" aria-label={`Workers that ${worker} may call`}>
          {calls.slice(0, MAX_CALLS).map((call) => (
            <ExplainedCell key={call.worker} run={call} />
          ))}
          {calls.length > MAX_CALLS ? <li class="cell-branch quiet">{calls.length - MAX_CALLS} more</li> : null}
        </ol>
      )}
    </li>
  );
}

function Contents({
  sandbox,
  narrowings,
  tools,
}: {
  readonly sandbox: ExplainedSandbox;
  readonly narrowings: readonly Narrowing[];
  readonly tools: readonly string[] | null;
}) {
  const gone = narrowings.filter(({ kind, to }) => kind === "mount" && to === "none");
  return (
    <dl class="cell-facts">
      <Fact name="Sees">
        <ul class="chips">
          {sandbox.mounts.length === 0 ? <li class="quiet">no files of the host</li> : null}
          {sandbox.mounts.slice(0, MAX_LISTED).map((mount) => (
            <MountChip key={mount.path} mount={mount} narrowings={narrowings} />
          ))}
          <MoreItems count={sandbox.mounts.length - MAX_LISTED} what="path" chip="chip" />
          {sandbox.withheld?.map(({ path }) => (
            <li key={path} class="chip chip-waits">
              <Visible text={path} max={200} /> <span>after approval</span>
            </li>
          ))}
          {gone.slice(0, MAX_LISTED).map(({ path = "", by }) => (
            <li key={path} class="chip chip-gone">
              <del>
                <Visible text={path} max={200} />
              </del>{" "}
              <span>
                taken by <Visible text={by} max={80} />
              </span>
            </li>
          ))}
          <MoreItems count={gone.length - MAX_LISTED} what="path" chip="chip chip-gone" />
        </ul>
      </Fact>
      <Fact name="Network">
        <NetworkChips network={sandbox.network} />
      </Fact>
      {tools === null ? null : (
        <Fact name="Tools">
          <ul class="chips">
            {tools.slice(0, MAX_LISTED).map((tool) => (
              <li key={tool} class="chip">
                <code>
                  <Visible text={tool} max={80} />
                </code>
              </li>
            ))}
            <MoreItems count={tools.length - MAX_LISTED} what="tool" chip="chip" />
          </ul>
        </Fact>
      )}
      {(sandbox.secrets ?? []).length === 0 ? null : (
        <Fact name="Secrets">
          <ul class="chips">
            {sandbox.secrets?.map((secret) => (
              <li key={secret} class="chip chip-open">
                <code>
                  <Visible text={secret} max={80} />
                </code>
              </li>
            ))}
          </ul>
        </Fact>
      )}
      <Fact name="Limits">
        <ul class="chips">
          {Object.entries(sandbox.limits).map(([limit, value]) => (
            <li key={limit} class="chip" title={limitTitle(limit, narrowings)}>
              {LIMIT_NAMES[limit] ?? limit} <strong>{limitText(limit, value)}</strong>
            </li>
          ))}
        </ul>
      </Fact>
      <Fact name="Policy">
        <Visible text={sandbox.policy.name} max={80} />{" "}
        <span class="quiet">
          <Visible text={sandbox.policy.description ?? ""} max={200} />
        </span>
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function MountChip({ mount, narrowings }: { readonly mount: Mount; readonly narrowings: readonly Narrowing[] }) {
  const { path, mode, suffixes = [], maxFileBytes, stage, discard, approval } = mount;
  const less = narrowings.find((one) => one.kind === "mount" && one.path === path && one.to === "ro");
  const isAsked = mode === "rw" && approval?.write === "ask";
  const about = [
    mode === "rw" ? "read and write" : "read",
    ...(discard ? ["changes are dropped"] : stage ? ["changes wait"] : []),
    ...(isAsked ? ["asks"] : []),
    ...(suffixes.length > 0 ? [`only ${suffixes.join(" ")}`] : []),
    ...(maxFileBytes === undefined ? [] : [`files up to ${roughBytesText(maxFileBytes)}`]),
  ];
  return (
    <li class={mode === "rw" ? "chip chip-write" : "chip"}>
      <Visible text={path} max={200} /> <span>{about.join(", ")}</span>
      {less === undefined ? null : (
        <span class="chip-gone">
          <del>write</del> taken by <Visible text={less.by} max={80} />
        </span>
      )}
    </li>
  );
}

function NetworkChips({ network }: { readonly network: ExplainedSandbox["network"] }) {
  if (network === false) return <span class="quiet">none</span>;
  if (network === true) return <Badge tone="warn">open: every host</Badge>;
  return (
    <ul class="chips">
      {network.allow.slice(0, MAX_LISTED).map(({ to, methods = [] }, index) => (
        <li key={`${to}/${index}`} class="chip chip-open">
          <Visible text={to} max={200} /> {methods.length === 0 ? null : <span>{methods.join(" ")}</span>}
        </li>
      ))}
      <MoreItems count={network.allow.length - MAX_LISTED} what="rule" chip="chip chip-open" />
      {network.allow.length === 0 ? <li class="quiet">no host</li> : null}
    </ul>
  );
}

const LIMIT_NAMES: Readonly<Record<string, string>> = {
  timeoutMs: "time",
  memoryBytes: "memory",
  cpus: "processors",
  pids: "processes",
  outputBytes: "output",
  diskBytes: "disk",
};

function limitText(limit: string, value: unknown): string {
  if (typeof value !== "number") return "no limit";
  if (limit.endsWith("Ms"))
    return durationText(value)
      .replace(/\.0 s$/, " s")
      .replace(/ 0 (?:s|min|h)$/, "");
  return limit.endsWith("Bytes") ? roughBytesText(value) : String(value);
}

/** The last that lowered it. */
function limitTitle(limit: string, narrowings: readonly Narrowing[]): string | undefined {
  const lowered = narrowings.findLast((one) => one.kind === "limit" && one.limit === limit);
  return lowered === undefined ? undefined : `${words(lowered.by)} lowered it from ${limitText(limit, lowered.from)}`;
}
