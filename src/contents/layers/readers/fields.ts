/** Yields the parts of a text that empty lines separate. */
export function* paragraphs(text: string): Generator<string, void, undefined> {
  for (let start = 0; start < text.length;) {
    const end = text.indexOf('\n\n', start)
    const stop = end < 0 ? text.length : end
    if (stop > start) yield text.slice(start, stop)
    start = stop + 1
  }
}

/** Returns a text with the line ends of Unix. */
export function unixLines(bytes: Buffer): string {
  return bytes.toString('utf8').replaceAll('\r\n', '\n')
}

/** Returns the fields `Name: value` of a paragraph by their name in lower case. Lines that continue a field are joined by `join`. The first of two fields counts. */
export function fieldsOf(paragraph: string, join = '\n'): ReadonlyMap<string, string> {
  const fields = new Map<string, string>()
  let name: string | undefined
  let lines: string[] = []
  const end = (): void => {
    if (name !== undefined && !fields.has(name)) fields.set(name, lines.join(join))
  }
  for (const line of paragraph.split('\n')) {
    const colon = line.indexOf(':')
    if (/^[ \t]/.test(line)) lines.push(join === '' ? line.slice(1) : line.trim())
    else if (colon > 0) {
      end()
      name = line.slice(0, colon).toLowerCase()
      lines = [line.slice(colon + 1).trim()]
    }
  }
  end()
  return fields
}
