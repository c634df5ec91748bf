import { useState } from "preact/hooks";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, countText, durationText, roughBytesText } from "../../../../text/amounts.ts";
import { printable } from "../../../../text/visible.ts";
import { StatusBadge, Visible } from "../../components/visible.tsx";

type Run = AnswerOf<"runs.show">;
type CalledRun = Run["calls"][number];
type Held = NonNullable<Run["held"]>;

/** `kept`: as its caller had it, or more of what it has itself; `narrowed`: less of it; `lost`: its caller had it, and it has not. */
export type AccessChange = "kept" | "narrowed" | "lost";

export interface ComparedMount {
  readonly path: string;
  readonly mode: "ro" | "rw";
  readonly change: AccessChange;
  /** For what is narrowed: what its caller has instead, as `/docs rw`. */
  readonly instead?: string;
}

export interface ComparedName {
  readonly name: string;
  readonly change: AccessChange;
}

export interface ComparedLimit {
  readonly name: string;
  readonly amount: number;
  /** What its caller may use; null for a root, or if it is not known. */
  readonly callers: number | null;
}

export interface Compared {
  readonly mounts: readonly ComparedMount[];
  /** `null`: not recorded. */
  readonly network: "open" | readonly ComparedName[] | null;
  readonly isNetworkNarrowed: boolean;
  readonly secrets: readonly ComparedName[];
  readonly limits: readonly ComparedLimit[];
}

interface Side {
  readonly held: Held | null;
  readonly limits: Readonly<Record<string, number>> | null;
}

/** What a call has, beside what its caller had. `caller` null: it is a root. Null: it has not started. */
export function compared(call: Side, caller: Side | null): Compared | null {
  if (call.held === null) return null;
  const above = caller?.held ?? null;
  const { network } = call.held;
  return {
    mounts: comparedMounts(call.held.mounts, above?.mounts ?? null),
    network: network === null || network === "open" ? network : comparedNames(network, namesOf(above?.network ?? null)),
    isNetworkNarrowed: isLess(network, above?.network ?? null),
    secrets: comparedNames(call.held.secrets, above?.secrets ?? []),
    limits: comparedLimits(call.limits, caller?.limits ?? null),
  };
}

function comparedMounts(own: Held["mounts"], above: Held["mounts"] | null): ComparedMount[] {
  if (above === null) return own.map((mount) => ({ ...mount, change: "kept" }));
  const kept = own.map((mount): ComparedMount => {
    const source = nearest(above, mount.path);
    const isLess =
      source !== undefined && (source.path !== mount.path || (source.mode === "rw" && mount.mode === "ro"));
    return isLess
      ? { ...mount, change: "narrowed", instead: `${source.path} ${source.mode}` }
      : { ...mount, change: "kept" };
  });
  const lost = above.filter(({ path }) => !own.some((mount) => covers(path, mount.path) || covers(mount.path, path)));
  return [...kept, ...lost.map((mount): ComparedMount => ({ ...mount, change: "lost" }))];
}

/** The mount of the caller that shows this path. */
function nearest(above: Held["mounts"], path: string): Held["mounts"][number] | undefined {
  return above.filter((mount) => covers(mount.path, path)).toSorted((a, b) => b.path.length - a.path.length)[0];
}

function covers(above: string, path: string): boolean {
  return above === path || above === "/" || path.startsWith(`${above}/`);
}

function comparedNames(own: readonly string[], above: readonly string[]): ComparedName[] {
  const lost = above.filter((name) => !own.includes(name));
  return [
    ...own.map((name): ComparedName => ({ name, change: "kept" })),
    ...lost.map((name): ComparedName => ({ name, change: "lost" })),
  ];
}

function namesOf(network: Held["network"]): readonly string[] {
  return network === null || network === "open" ? [] : network;
}

function isLess(own: Held["network"], above: Held["network"]): boolean {
  if (own === null || above === null || own === "open") return false;
  return above === "open" || above.some((name) => !own.includes(name));
}

function comparedLimits(own: Side["limits"], above: Side["limits"]): ComparedLimit[] {
  return Object.entries(own ?? {})
    .filter(([name]) => name in LIMIT_NAMES)
    .map(([name, amount]) => ({ name, amount, callers: above?.[name] ?? null }));
}

/** In the words of worker files. */
const LIMIT_NAMES: Readonly<Record<string, string>> = {
  timeoutMs: "timeout",
  memoryBytes: "memory",
  cpus: "cpus",
  pids: "pids",
  outputBytes: "output",
  diskBytes: "disk",
};

/** Anything was taken away on the way to this call. */
export function isNarrowed({ mounts, isNetworkNarrowed, secrets, limits }: Compared): boolean {
  return (
    mounts.some(({ change }) => change !== "kept") ||
    isNetworkNarrowed ||
    secrets.some(({ change }) => change === "lost") ||
    limits.some(isLower)
  );
}

function isLower({ amount, callers }: ComparedLimit): boolean {
  return callers !== null && amount < callers;
}

/** Calls of one run that are drawn at first. */
const AT_FIRST = 40;
const MAX_DEPTH = 16;
const MAX_HOSTS = 12;

type Node = Pick<
  CalledRun,
  "run" | "worker" | "status" | "durationMs" | "error" | "held" | "limits" | "calls" | "image" | "model"
> & {
  readonly attached: readonly string[];
};

/** Who called whom, and what each could see and reach, beside what its caller could: what was taken away is marked. */
export function CallTreeView({ run }: { readonly run: Run }) {
  const root: Node = { ...run, run: run.id, attached: run.attachments.map(({ name }) => name) };
  return (
    <div class="calls">
      <div class="call-heads" aria-hidden="true">
        <span>Run</span>
        <span>Sees</span>
        <span>Reaches</span>
        <span>Limits</span>
      </div>
      <ul class="call-list">
        <CallNode node={root} caller={null} depth={0} />
      </ul>
      {run.leftOut > 0 ? <p class="quiet">{counted(run.leftOut, "more call")} did not fit into the record.</p> : null}
      {run.calls.length === 0 ? null : (
        <p class="legend quiet">
          <span class="chip chip-narrowed">↓ narrower than its caller's</span>{" "}
          <span class="chip chip-lost">its caller had it</span>
        </p>
      )}
    </div>
  );
}

function CallNode({
  node,
  caller,
  depth,
}: {
  readonly node: Node;
  readonly caller: Node | null;
  readonly depth: number;
}) {
  const [shown, setShown] = useState(AT_FIRST);
  const { run, worker, status, durationMs, error, calls, attached, image, model } = node;
  const difference = compared(node, caller);
  const below = depth >= MAX_DEPTH ? [] : calls.slice(0, shown);
  return (
    <li class="call">
      <div class="call-row">
        <div class="call-name">
          <span class="call-worker" title={[image ?? model ?? "", run].filter((text) => text !== "").join(" · ")}>
            <Visible text={worker} max={80} />
          </span>
          <StatusBadge status={status} />
          {durationMs === null || durationMs === 0 ? null : <span class="quiet">{durationText(durationMs)}</span>}
          {difference !== null && isNarrowed(difference) ? <span class="unseen">narrower than its caller</span> : null}
          {attached.length === 0 ? null : (
            <span class="attached quiet" title="Files that its caller gave it, as /attachments">
              + <Visible text={attached.slice(0, 3).join(", ")} max={90} />
              {attached.length > 3 ? ` and ${attached.length - 3} more` : ""}
            </span>
          )}
          {error === null || caller === null ? null : (
            <p class="call-error">
              <Visible text={error.message} max={600} />
            </p>
          )}
        </div>
        {difference === null ? (
          <span class="quiet never">{status === "refused" ? "never started" : ""}</span>
        ) : (
          <Sight difference={difference} />
        )}
      </div>
      {below.length === 0 ? null : (
        <ul class="call-list">
          {below.map((call) => (
            <CallNode key={call.run} node={{ ...call, attached: call.attachments }} caller={node} depth={depth + 1} />
          ))}
        </ul>
      )}
      {calls.length > below.length ? (
        <button
          type="button"
          class="button button-quiet"
          onClick={() => setShown(shown + 200)}
          disabled={depth >= MAX_DEPTH}
        >
          {countText(calls.length - below.length)} more of {counted(calls.length, "call")}
        </button>
      ) : null}
    </li>
  );
}

function Sight({ difference }: { readonly difference: Compared }) {
  const { mounts, network, isNetworkNarrowed, secrets, limits } = difference;
  return (
    <>
      <div class="sight">
        <span class="unseen">Sees: </span>
        {mounts.length === 0 && secrets.length === 0 ? <span class="quiet">no directories</span> : null}
        {mounts.map(({ path, mode, change, instead }) => (
          <span
            key={`${change} ${path}`}
            class={`chip chip-${change}`}
            title={instead === undefined ? undefined : `its caller has ${printable(instead)}`}
          >
            {change === "narrowed" ? "↓ " : ""}
            {change === "lost" ? <span class="unseen">not: </span> : null}
            <Visible text={path} max={120} /> <span class={`mode mode-${mode}`}>{mode}</span>
          </span>
        ))}
        {secrets.map(({ name, change }) => (
          <span key={`secret ${name}`} class={`chip chip-${change}`}>
            secret <Visible text={name} max={60} />
          </span>
        ))}
      </div>
      <div class="sight">
        <span class="unseen">Reaches: </span>
        {network === null ? <span class="quiet">by its commands</span> : null}
        {network === "open" ? <span class="chip chip-open">any host</span> : null}
        {network !== null && network !== "open" && network.every(({ change }) => change === "lost") ? (
          <span class={isNetworkNarrowed ? "chip chip-narrowed" : "quiet"}>
            {isNetworkNarrowed ? "↓ no network" : "no network"}
          </span>
        ) : null}
        {network === null || network === "open"
          ? null
          : network.slice(0, MAX_HOSTS).map(({ name, change }) => (
              <span key={name} class={`chip chip-${change}`}>
                <Visible text={name} max={80} />
              </span>
            ))}
        {network !== null && network !== "open" && network.length > MAX_HOSTS ? (
          <span class="quiet">and {counted(network.length - MAX_HOSTS, "more host")}, not shown</span>
        ) : null}
      </div>
      <Limits limits={limits} />
    </>
  );
}

/** Of a root the main ones, of a call those that are lower than its caller's: the main ones, and the number of the others. */
function Limits({ limits }: { readonly limits: readonly ComparedLimit[] }) {
  const isRoot = limits.every(({ callers }) => callers === null);
  const told = isRoot ? limits : limits.filter(isLower);
  const shown = told.filter(({ name }) => MAIN_LIMITS.includes(name));
  const others = told.filter(({ name }) => !MAIN_LIMITS.includes(name));
  return (
    <div class="sight">
      <span class="unseen">Limits: </span>
      {told.length === 0 && limits.length > 0 ? <span class="quiet">as its caller</span> : null}
      {shown.map((limit) => (
        <span
          key={limit.name}
          class={`chip chip-${isLower(limit) ? "narrowed" : "kept"}`}
          title={limit.callers === null ? undefined : `its caller may use ${amountText(limit.name, limit.callers)}`}
        >
          {isLower(limit) ? "↓ " : ""}
          {limitText(limit)}
        </span>
      ))}
      {others.length === 0 ? null : (
        <span class={`chip chip-${isRoot ? "kept" : "narrowed"}`} title={others.map(limitText).join(", ")}>
          {isRoot ? "" : "↓ "}
          {others.length} more
          <span class="unseen">: {others.map(limitText).join(", ")}</span>
        </span>
      )}
    </div>
  );
}

function limitText({ name, amount }: ComparedLimit): string {
  return `${LIMIT_NAMES[name]} ${amountText(name, amount)}`;
}

const MAIN_LIMITS = ["timeoutMs", "memoryBytes", "cpus"];

function amountText(name: string, amount: number): string {
  if (name.endsWith("Ms")) return durationText(amount);
  return name.endsWith("Bytes") ? roughBytesText(amount) : String(amount);
}
