import { nearestName } from './nearest-name.ts'

/** More names are not listed: an error must stay readable. */
const maxListed = 20

/** A half sentence about what can stand in the place of an unknown name: the nearest of `known`, else all of them. Names stand in backticks. Empty where there are none. */
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
