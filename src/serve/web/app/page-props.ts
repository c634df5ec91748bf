/** What a page is given of its address. */
export interface PageProps {
  /** After the name of the page. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}
