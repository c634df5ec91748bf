/** `auto`: as the system has it. */
export type Theme = "auto" | "light" | "dark";

const KEY = "corral.theme";
const ORDER: readonly Theme[] = ["auto", "light", "dark"];

export function keptTheme(store: Pick<Storage, "getItem">): Theme {
  const kept = store.getItem(KEY);
  return ORDER.find((theme) => theme === kept) ?? "auto";
}

export function nextTheme(theme: Theme): Theme {
  return ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length] ?? "auto";
}

export function keepTheme(theme: Theme, store: Pick<Storage, "setItem">): void {
  store.setItem(KEY, theme);
}

export function applyTheme(theme: Theme, root: HTMLElement): void {
  if (theme === "auto") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme);
}
