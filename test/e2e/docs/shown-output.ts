const anything = '…'

function asPattern(text: string): RegExp {
  const parts = text.split(anything).map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
  return new RegExp(`^${parts.join('.+')}$`, 's')
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns where `printed` lacks parts of `shown`. Objects may have more members, lists have the same items, `…` in a text matches any text. */
export function jsonDifferences(shown: unknown, printed: unknown, path = '$'): string[] {
  if (typeof shown === 'string' && typeof printed === 'string') {
    return asPattern(shown).test(printed) ? [] : [`${path}: shown ${JSON.stringify(shown)}, printed ${JSON.stringify(printed)}`]
  }
  if (Array.isArray(shown) && Array.isArray(printed)) {
    const length = shown.length === printed.length ? [] : [`${path}: ${shown.length} items shown, ${printed.length} printed`]
    return [...length, ...shown.flatMap((item, at) => (at < printed.length ? jsonDifferences(item, printed[at], `${path}[${at}]`) : []))]
  }
  if (isRecord(shown) && isRecord(printed)) {
    return Object.entries(shown).flatMap(([name, value]) =>
      Object.hasOwn(printed, name) ? jsonDifferences(value, printed[name], `${path}.${name}`) : [`${path}.${name}: shown, but not printed`],
    )
  }
  return shown === printed ? [] : [`${path}: shown ${JSON.stringify(shown)}, printed ${JSON.stringify(printed)}`]
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    // Not JSON: the result is missing.
    return undefined
  }
}

/** The lines of `shown` that are not among the lines of `printed` in that order. */
export function missingLines(shown: string, printed: string): string[] {
  const lines = printed.split('\n').map((line) => line.trim())
  let at = 0
  return shown
    .trim()
    .split('\n')
    .filter((line) => {
      const pattern = asPattern(line.trim())
      const found = lines.findIndex((candidate, index) => index >= at && pattern.test(candidate))
      if (found >= 0) at = found + 1
      return found < 0
    })
}

/** Returns where a command's output differs from the page: JSON, JSON and a last line `HTTP <status>`, or lines. */
export function outputDifferences(shown: string, printed: string): string[] {
  const status = /\nHTTP \d+\s*$/.exec(shown)?.[0].trim() ?? ''
  const json = parseJson(shown.trim().slice(0, shown.trim().length - status.length))
  if (json === undefined) return missingLines(shown, printed).map((line) => `not printed: ${line}\nbut:\n${printed}`)
  const trimmed = printed.trim()
  if (!trimmed.endsWith(status)) return [`shown ${status}, printed ${trimmed.slice(-200)}`]
  const answer = parseJson(trimmed.slice(0, trimmed.length - status.length))
  return answer === undefined ? [`not JSON: ${trimmed}`] : jsonDifferences(json, answer)
}
