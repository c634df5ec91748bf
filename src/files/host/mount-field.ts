/** A field of mountinfo as it is meant: spaces, tabs, newlines and backslashes stand there as `\ooo` (proc(5)). */
export function decodedMountField(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
