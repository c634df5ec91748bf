import { agoText } from "../text/amounts.ts";

/** An age; its title has the time itself. */
export function Ago({ at, now }: { readonly at: string; readonly now: number }) {
  return (
    <time dateTime={at} title={at}>
      {agoText(at, now)}
    </time>
  );
}
