/** A reporter of Node's test runner: the coverage as one line of JSON. */
export default async function* coverage(events) {
  for await (const { type, data } of events) {
    if (type === "test:coverage") yield `${JSON.stringify(data.summary)}\n`;
  }
}
