import type { ShownFleet } from "../../api/shapes.ts";
import { toneOf } from "../../components/badge.tsx";
import { countText, durationText, words } from "../../text/amounts.ts";

interface Share {
  readonly status: string;
  readonly count: number;
  readonly tone: string;
}

/** How many items are in which state, as a bar and in numbers. A number shows its items. */
export function Progress({ fleet, show }: { readonly fleet: ShownFleet; readonly show: (status: string) => void }) {
  const { counts, recentRate, leftMs } = fleet;
  const shares = sharesOf(fleet);
  const percent = counts.total === 0 ? 0 : Math.floor((counts.done * 1000) / counts.total) / 10;
  return (
    <section class="fleet-progress" aria-label="Progress">
      <p class="fleet-figures">
        <strong>
          {countText(counts.done)} of {countText(counts.total)}
        </strong>{" "}
        done ({percent}%)
        {recentRate === null ? null : `, ${rateText(recentRate)}`}
        {leftMs === null ? null : `, about ${durationText(Math.max(1000, Math.round(leftMs / 1000) * 1000))} left`}
      </p>
      <div class="fleet-bar" aria-hidden="true">
        {shares.map(({ status, count, tone }) => (
          <span key={status} class={`fleet-share fleet-share-${tone}`} style={{ flexGrow: count }} />
        ))}
      </div>
      <ul class="fleet-legend">
        {shares.map(({ status, count, tone }) => (
          <li key={status}>
            <button type="button" class="fleet-count" onClick={() => show(status)}>
              <span class={`fleet-dot fleet-share-${tone}`} aria-hidden="true" />
              <strong>{countText(count)}</strong> {words(status)}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Successes first, then failures, running items and waiting ones. */
const ORDER = ["good", "plain", "warn", "bad", "busy", "waiting"];
const TONES: Readonly<Record<string, string>> = {
  cached: "good",
  pending: "warn",
  partly_applied: "warn",
  discarded: "plain",
};

function sharesOf({ summary, counts }: ShownFleet): Share[] {
  const ended = new Map<string, number>();
  for (const { status, count } of summary) ended.set(status, (ended.get(status) ?? 0) + count);
  const shares: Share[] = [...ended].map(([status, count]) => ({
    status,
    count,
    tone: TONES[status] ?? toneOf(status),
  }));
  shares.push({ status: "running", count: counts.running, tone: "busy" });
  shares.push({ status: "queued", count: counts.queued, tone: "waiting" });
  return shares
    .filter(({ count }) => count > 0)
    .toSorted((a, b) => ORDER.indexOf(a.tone) - ORDER.indexOf(b.tone) || b.count - a.count);
}

function rateText(perSecond: number): string {
  return perSecond >= 1
    ? `${perSecond.toFixed(perSecond < 10 ? 1 : 0)} per second`
    : `${(perSecond * 60).toFixed(1)} per minute`;
}
