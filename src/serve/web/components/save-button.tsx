import type { ComponentChildren } from "preact";
import { ApiError } from "../../../client/client.ts";
import { useApp } from "../app/resource.ts";
import { Button } from "./dialog.tsx";

const REVOKE_MS = 60_000;

/**
 * Saves a file. Its bytes are a stranger's: they are given to the browser as a file to save, of no type that it shows, and never as a place to go
 * to, so that nothing in them acts as this page.
 */
export function SaveButton({
  load,
  name,
  label,
  children,
}: {
  readonly load: () => Promise<AsyncIterable<Uint8Array>>;
  readonly name: string;
  readonly label?: string;
  readonly children: ComponentChildren;
}) {
  const { notify } = useApp();
  const save = async (): Promise<void> => {
    try {
      const parts: Uint8Array<ArrayBuffer>[] = [];
      for await (const piece of await load()) parts.push(new Uint8Array(piece));
      const place = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
      const link = document.createElement("a");
      link.href = place;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(place), REVOKE_MS);
    } catch (fault) {
      notify(fault instanceof ApiError ? fault.message : String(fault), "bad");
    }
  };
  return (
    <Button act={save} {...(label === undefined ? {} : { label })}>
      {children}
    </Button>
  );
}
