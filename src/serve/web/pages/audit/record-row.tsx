import { useState } from "preact/hooks";
import type { AuditRecord } from "../../api/shapes.ts";
import { Badge, type Tone } from "../../components/badge.tsx";
import { CodeBlock } from "../../components/code-block.tsx";
import { Ago } from "../../components/time.tsx";
import { Visible } from "../../components/visible.tsx";
import { hrefTo } from "../../routing/page-address.ts";
import { words } from "../../text/amounts.ts";
import { summaryOf } from "./records.ts";

const TONES: Readonly<Record<string, Tone>> = {
  refused: "bad",
  approval: "warn",
  grant: "warn",
  changes_applied: "good",
  repaired: "bad",
  pushed: "warn",
};

/** One record in a line; all of it when it is opened. */
export function RecordRow({ record, now }: { readonly record: AuditRecord; readonly now: number }) {
  const [isOpen, setOpen] = useState(false);
  const { type, at, worker, run, ok } = record;
  const tone = type === "tool_used" && ok === false ? "bad" : (TONES[type] ?? "plain");
  return (
    <li class="record">
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>
          <span class="record-at quiet">
            <Ago at={at} now={now} />
          </span>
          <Badge tone={tone}>{words(type)}</Badge>
          <span class="record-worker">
            <Visible text={worker ?? ""} max={80} />
          </span>
          <span class="record-text">
            <Visible text={summaryOf(record)} max={240} />
          </span>
        </summary>
        {isOpen ? (
          <div class="record-whole">
            {run === undefined ? null : (
              <p>
                <a href={hrefTo(["runs", run])}>
                  Run <code>{run}</code>
                </a>
              </p>
            )}
            <CodeBlock text={JSON.stringify(record, null, 2)} />
          </div>
        ) : null}
      </details>
    </li>
  );
}
