import { counted } from "../../../text/amounts.ts";
import type { FileDiff, Left, Row } from "../text/diff.ts";
import { Button, Confirm } from "./dialog.tsx";
import { Visible } from "./visible.tsx";

/** Lines of a diff that are drawn at first. */
export const ROOM = 300;

/** A unified diff: numbers of lines, and what differs within a line. `left`: what of it is not drawn. */
export function DiffView({
  files,
  left,
  label,
  path = null,
  showAll,
}: {
  readonly files: readonly FileDiff[];
  readonly left: readonly Left[];
  readonly label: string;
  /** Of its only file, if that is named above it. */
  readonly path?: string | null;
  readonly showAll: () => void;
}) {
  return (
    <div class="diff">
      {files.map((file, index) => (
        <OneFile key={index} file={file} label={label} path={path} />
      ))}
      {left.length === 0 ? null : (
        <button type="button" class="button button-quiet" onClick={showAll}>
          {leftText(left)} not shown: show all
        </button>
      )}
    </div>
  );
}

/** What was not drawn when a person wants to say yes: beside the buttons, with one that draws it. */
export function LeftNote({ left, showAll }: { readonly left: readonly Left[]; readonly showAll: () => void }) {
  return left.length === 0 ? null : (
    <p class="left-note" role="status">
      {leftText(left)} not shown yet.{" "}
      <Button kind="quiet" act={showAll}>
        Show all
      </Button>
    </p>
  );
}

/** The only yes while something is not drawn: it names what that is. */
export function ConfirmUnseen({
  left,
  deed,
  act,
  close,
}: {
  readonly left: readonly Left[];
  readonly deed: string;
  readonly act: () => void;
  readonly close: () => void;
}) {
  return (
    <Confirm title="Not all of it was shown" deed={`${deed}, unseen`} act={act} close={close}>
      <p>{leftText(left)} not shown:</p>
      <ul class="left-names">
        {left.map(({ name, lines }, index) => (
          <li key={index}>
            <code>
              <Visible text={name} />
            </code>{" "}
            {lines === 0 ? "" : counted(lines, "line")}
          </li>
        ))}
      </ul>
    </Confirm>
  );
}

function leftText(left: readonly Left[]): string {
  const lines = left.reduce((sum, one) => sum + one.lines, 0);
  const places = counted(left.length, "name");
  const what = lines === 0 ? places : `${counted(lines, "line")} of ${places}`;
  return `${what} ${left.length === 1 && lines < 2 ? "is" : "are"}`;
}

function OneFile({
  file: { headings, hunks },
  label,
  path,
}: {
  readonly file: FileDiff;
  readonly label: string;
  readonly path: string | null;
}) {
  return (
    <>
      {headings
        .filter(
          (heading, at) =>
            !(heading.startsWith("--- ") && headings[at + 1]?.startsWith("+++ ")) && heading !== `+++ ${path}`,
        )
        .map((heading, index) => (
          <p key={index} class="diff-heading">
            <Visible text={heading.replace(/^\+\+\+ /, "")} />
          </p>
        ))}
      {hunks.length === 0 ? null : (
        <table class="diff-table" aria-label={label}>
          <thead class="unseen">
            <tr>
              <th scope="col">Line before</th>
              <th scope="col">Line after</th>
              <th scope="col">Change</th>
              <th scope="col">Text</th>
            </tr>
          </thead>
          {hunks.map(({ rows }, index) => (
            <tbody key={index}>
              {rows.map((row, at) => (
                <DiffRow key={at} row={row} />
              ))}
            </tbody>
          ))}
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
          <Visible text={text} />
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
