import type { FailureGroup } from "../../api/shapes.ts";
import { StatusBadge } from "../../components/badge.tsx";
import { Visible } from "../../components/visible.tsx";
import { countText, plural } from "../../text/amounts.ts";

/** Why items failed: those with the same last words are one group, and a group shows its items. */
export function Failures({
  groups,
  failed,
  chosen,
  choose,
}: {
  readonly groups: readonly FailureGroup[];
  readonly failed: number;
  /** The key of the example of a group; empty: none is chosen. */
  readonly chosen: string;
  readonly choose: (example: string) => void;
}) {
  const shown = groups.reduce((sum, { count }) => sum + count, 0);
  return (
    <section aria-labelledby="failures">
      <h2 id="failures">{plural(failed, "failure")} by cause</h2>
      <ul class="fleet-causes">
        {groups.map(({ count, status, text, example }) => (
          <li key={example}>
            <button
              type="button"
              class="fleet-cause"
              aria-pressed={chosen === example}
              onClick={() => choose(chosen === example ? "" : example)}
            >
              <strong>{countText(count)}</strong>
              <StatusBadge status={status} />
              <span class="fleet-cause-text">
                <Visible text={text} max={300} />
              </span>
            </button>
          </li>
        ))}
      </ul>
      {shown < failed ? <p class="quiet">{countText(failed - shown)} more have other causes.</p> : null}
    </section>
  );
}
