/**
 * How many characters all texts of a value have together, names of fields among them, and one for each value. Near its length
 * as JSON, without writing it out. Goes level by level, so that no depth is too much for it.
 */
export function charactersIn(json: unknown): number {
  let characters = 0;
  for (let level: readonly unknown[] = [json]; level.length > 0; ) {
    const next: unknown[] = [];
    for (const value of level) {
      characters += typeof value === "string" ? value.length + 1 : 1;
      if (typeof value !== "object" || value === null) continue;
      for (const [name, part] of Object.entries(value)) {
        characters += Array.isArray(value) ? 0 : name.length;
        next.push(part);
      }
    }
    level = next;
  }
  return characters;
}
