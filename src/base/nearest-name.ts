/** Returns the candidate with the most similar spelling, by edit distance; undefined if none is similar. */
export function nearestName(name: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1
  for (const candidate of candidates) {
    // The distance is at least the difference in length. That difference is cheap to compute.
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase())
    if (distance >= bestDistance) continue
    best = candidate
    bestDistance = distance
  }
  return best
}

/** Returns the Levenshtein distance: the minimum number of characters to insert, remove or replace. */
function editDistance(from: string, to: string): number {
  let previous = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let row = 1; row <= from.length; row += 1) {
    const current = [row]
    for (let column = 1; column <= to.length; column += 1) {
      const replaced = (previous[column - 1] ?? 0) + (from[row - 1] === to[column - 1] ? 0 : 1)
      current.push(Math.min(replaced, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1))
    }
    previous = current
  }
  return previous[to.length] ?? 0
}

/** Maximum number of names in an error message. */
const maxListed = 20

/**
 * Returns the end of an error message about an unknown name: `; did you mean` with the most similar known name, otherwise a list of the known names. Empty if
 * there are no known names.
 */
export function knownInstead(unknown: string, known: readonly string[]): string {
  const nearest = nearestName(unknown, known)
  if (nearest !== undefined) return `; did you mean \`${nearest}\`?`
  if (known.length === 0) return ''
  const rest = known.length > maxListed ? ', ...' : ''
  return `; known are ${known
    .slice(0, maxListed)
    .map((name) => `\`${name}\``)
    .join(', ')}${rest}`
}
