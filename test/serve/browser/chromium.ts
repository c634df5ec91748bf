import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type Browser, chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** The browser of this machine; null if there is none. */
export function chromiumPath(env: Readonly<Record<string, string | undefined>> = process.env): string | null {
  const { CORRAL_CHROMIUM: given, PATH = "" } = env;
  if (given !== undefined) return given;
  const places = PATH.split(delimiter).flatMap((dir) => NAMES.map((name) => join(dir, name)));
  return places.find((path) => existsSync(path)) ?? null;
}

/** Why tests in the browser are skipped; false if they are not. For `describe.skipIf`. */
export const NO_CHROMIUM =
  chromiumPath() === null && "there is no Chromium: apt-get install chromium, or name one in CORRAL_CHROMIUM";

/** The pages that Chromium draws its own address bar with, for each profile anew: they cost several times what a test's page does. */
const OWN_PAGES = ["WebUIOmniboxPopup", "WebUIOmniboxFullPopup", "WebUIOmniboxAimPopup"];
/** Of what playwright switches off, what would reach the network, or hold a page up: a second list replaces its own. */
const AS_PLAYWRIGHT = [
  "AimEnabled",
  "HttpsFirstBalancedModeAutoEnable",
  "HttpsUpgrades",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
];
const WITHOUT = ["SpareRendererForSitePerProcess", ...OWN_PAGES, ...AS_PLAYWRIGHT];

/** `args`: more of Chromium's own options. */
export async function openBrowser(args: readonly string[] = []): Promise<Browser> {
  const executablePath = chromiumPath();
  if (executablePath === null) throw new Error(String(NO_CHROMIUM));
  // Chromium's sandbox refuses root, and needs user namespaces. All that it opens here is a service of the test itself.
  const more = ["--disable-dev-shm-usage", `--disable-features=${WITHOUT.join(",")}`, ...args];
  return await chromium.launch({ executablePath, chromiumSandbox: false, args: more });
}
