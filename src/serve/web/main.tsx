/*
 * The page of `corral serve`. To add a page: a folder `pages/NAME/` with `NAME.tsx`, which exports a component that takes
 * `PageProps` (what follows its name in the address), and its styles in `NAME.css` beside it; then a line in `pages.ts`.
 * Pages do not import each other. They ask the service with `useResource` and `useApp().client`, show texts of workers with `<Visible>` alone,
 * offer what a token may do with `useMay`, and add keys with `useShortcuts`. No inline style or script: the policy of the page forbids them.
 */
import { render } from "preact";
import { Root } from "./root.tsx";
import { applyTheme, keptTheme } from "./session/theme.ts";

applyTheme(keptTheme(localStorage), document.documentElement);
const place = document.getElementById("page");
if (place !== null) render(<Root />, place);
