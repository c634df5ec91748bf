import { useState } from "preact/hooks";
import { countText } from "../text/amounts.ts";
import { type FileDiff, parseDiff, type Row } from "../text/diff.ts";
import { Visible } from "./visible.tsx";

const AT_FIRST = 300;
const MORE = 2000;
const MAX_LINE_CHARS = 4000;

/** A unified diff: numbers of lines, and what differs within a line. Long ones are drawn in parts. */
export function DiffView({
  lines,
  label,
  path = null,
}: {
  readonly lines: readonly string[];
  readonly label: string;
  /** Of its only file, if that is named above it. */
  readonly path?: string | null;
}) {
  const [limit, setLimit] = useState(AT_FIRST);
  const files = parseDiff(lines);
  const total = lines.length;
  let left = limit;
  return (
    <div class="diff">
      {files.map((file, index) => {
        if (left <= 0) return null;
        const room = left;
        left -= file.headings.length + file.hunks.reduce((sum, { rows }) => sum + rows.length, 0);
        return <OneFile key={index} file={file} room={room} label={label} path={path} />;
      })}
      {left < 0 ? (
        <button type="button" class="button button-quiet" onClick={() => setLimit(limit + MORE)}>
          Show more of {countText(total)} lines
        </button>
      ) : null}
    </div>
  );
}

function OneFile({
  file,
  room,
  label,
  path,
}: {
  readonly file: FileDiff;
  readonly room: number;
  readonly label: string;
  readonly path: string | null;
}) {
  let left = room;
  return (
    <>
      {file.headings
        .filter((heading) => !heading.startsWith("--- ") && heading !== `+++ ${path}`)
        .map((heading, index) => (
          <p key={index} class="diff-heading">
            <Visible text={heading.replace(/^\+\+\+ /, "")} max={1000} />
          </p>
        ))}
      {file.hunks.length === 0 ? null : (
        <table class="diff-table" aria-label={label}>
          <thead class="unseen">
            <tr>
              <th scope="col">Line before</th>
              <th scope="col">Line after</th>
              <th scope="col">Change</th>
              <th scope="col">Text</th>
            </tr>
          </thead>
          {file.hunks.map(({ rows }, index) => {
            if (left <= 0) return null;
            const shown = rows.slice(0, left);
            left -= rows.length;
            return (
              <tbody key={index}>
                {shown.map((row, at) => (
                  <DiffRow key={at} row={row} />
                ))}
              </tbody>
            );
          })}
        </table>
      )}
    </>
  );
}

const SIGNS: Readonly<Record<Row["kind"], string>> = { added: "+", removed: "−", same: "", note: "" };

function DiffRow({ row: { kind, before, after, text, mark } }: { readonly row: Row }) {
  return (
    <tr class={`diff-${kind}`}>
      <td class="diff-number">{before}</td>
      <td class="diff-number">{after}</td>
      <td class="diff-sign">{SIGNS[kind]}</td>
      <td class="diff-text">
        {mark === null ? (
          <Visible text={text} max={MAX_LINE_CHARS} />
        ) : (
          <>
            <Visible text={text.slice(0, mark[0])} />
            <mark>
              <Visible text={text.slice(mark[0], mark[1])} />
            </mark>
            <Visible text={text.slice(mark[1])} />
          </>
        )}
      </td>
    </tr>
  );
}
