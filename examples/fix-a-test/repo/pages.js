/** The items in pages of at most `size`. */
export function paginate(items, size) {
  const count = Math.floor(items.length / size);
  return Array.from({ length: count }, (_, page) => items.slice(page * size, (page + 1) * size));
}
