import { createHash } from "node:crypto";
import { globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";

/** Of what the page begins with, compressed: it opens at once also over a slow line. */
const MAX_GZIPPED_BYTES = 100 * 1024;
/** Of all that it loads later. */
const MAX_LATER_BYTES = 64 * 1024;

/** First what the others build on. Each page brings its own file. */
const STYLES = ["styles/tokens.css", "styles/*.css", "components/*.css", "pages/*/*.css"];

/**
 * Builds the page of `corral serve` from `src/serve/web/` into `dist/web/`: its files are named by their content, and
 * `index.html` names them. No script and no style is in the HTML, as its policy forbids both.
 */
export async function buildPage(root: string): Promise<string[]> {
  const [from, to] = [join(root, "src/serve/web"), join(root, "dist/web")];
  mkdirSync(join(to, "assets"), { recursive: true });
  const bundle = await rolldown({
    input: { page: join(from, "main.tsx") },
    platform: "browser",
    cwd: root,
    tsconfig: join(root, "tsconfig.web.json"),
    // Its package.json names a file that is not there.
    resolve: { alias: { "@xterm/headless": "@xterm/headless/lib-headless/xterm-headless.mjs" } },
    transform: { target: "es2022" },
  });
  const { output } = await bundle.write({
    dir: join(to, "assets"),
    format: "esm",
    minify: true,
    comments: false,
    entryFileNames: "[name]-[hash].js",
    chunkFileNames: "[name]-[hash].js",
  });
  await bundle.close();
  const script = output.find((file) => file.type === "chunk" && file.isEntry)?.fileName ?? "";
  const style = asset(to, "page", "css", stylesIn(from));
  const icon = asset(to, "icon", "svg", readFileSync(join(from, "icon.svg"), "utf8"));
  writeFileSync(join(to, "index.html"), htmlWith({ script, style, icon }));
  const later = new Set(
    output.flatMap((file) => (file.type === "chunk" && !file.isEntry ? [`assets/${file.fileName}`] : [])),
  );
  for (const [what, isLater, most] of [
    ["page", false, MAX_GZIPPED_BYTES],
    ["part that the page loads later", true, MAX_LATER_BYTES],
  ] as const) {
    const bytes = globSync("**/*.*", { cwd: to })
      .filter((file) => later.has(file) === isLater)
      .reduce((sum, file) => sum + gzipSync(readFileSync(join(to, file))).length, 0);
    if (bytes > most) throw new Error(`the ${what} has ${bytes} bytes compressed, at most ${most}`);
  }
  return output.flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
}

/** Without comments and indents: compression does the rest. */
function stylesIn(from: string): string {
  const files = new Set(STYLES.flatMap((pattern) => globSync(pattern, { cwd: from }).sort()));
  const text = [...files].map((file) => readFileSync(join(from, file), "utf8")).join("\n");
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/\s*\n\s*/g, "\n");
}

function asset(to: string, name: string, type: string, text: string): string {
  const hash = createHash("sha256").update(text).digest("base64url").slice(0, 8);
  const file = `${name}-${hash}.${type}`;
  writeFileSync(join(to, "assets", file), text);
  return file;
}

function htmlWith({ script, style, icon }: Readonly<Record<"script" | "style" | "icon", string>>): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Corral</title>
<link rel="icon" href="/assets/${icon}" type="image/svg+xml">
<link rel="stylesheet" href="/assets/${style}">
<script type="module" src="/assets/${script}"></script>
</head>
<body>
<div id="page"></div>
<noscript><p>This page needs JavaScript. The service has an API as well: see /openapi.json.</p></noscript>
</body>
</html>
`;
}
