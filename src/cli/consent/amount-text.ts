import { counted, roughBytesText } from "../../fleet/report/measures/quantity.ts";
import type { Amount } from "../../operations/foreseen-changes.ts";

/** `2 files, +12 -3 lines, 4.1 KiB`. */
export function amountText({ files, added, removed, bytes }: Amount): string {
  return `${counted(files, "file")}, +${added} -${removed} lines, ${roughBytesText(bytes)}`;
}
