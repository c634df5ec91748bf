import { words } from "../../../text/amounts.ts";

export type Tone = "good" | "bad" | "warn" | "busy" | "plain";

const TONES: Readonly<Record<string, Tone>> = {
  succeeded: "good",
  done: "good",
  approved: "good",
  applied: "good",
  ok: "good",
  running: "busy",
  waiting: "busy",
  queued: "busy",
  cancelled: "warn",
  refused: "warn",
  denied: "warn",
  held: "warn",
  paused: "warn",
  withdrawn: "warn",
  interrupted: "warn",
  closed: "plain",
};

const MARKS: Readonly<Record<Tone, string>> = { good: "✓", bad: "✗", warn: "■", busy: "●", plain: "·" };

/** How something ended, or that it still runs, by word, mark and colour: each is enough alone. */
export function StatusBadge({ status }: { readonly status: string }) {
  return <Badge tone={toneOf(status)}>{words(status)}</Badge>;
}

/** What is not known ended badly. */
export function toneOf(status: string): Tone {
  return TONES[status] ?? "bad";
}

export function Badge({ tone = "plain", children }: { readonly tone?: Tone; readonly children: string }) {
  return (
    <span class={`badge badge-${tone}`}>
      <span class="badge-mark" aria-hidden="true">
        {MARKS[tone]}
      </span>
      {children}
    </span>
  );
}
