import { RE2JS } from 're2js'
import { RecentMap } from '../../base/recent-map.ts'

/** Maximum length of a pattern, in characters. */
const maxLength = 1024

/** Maximum size of a compiled pattern, in instructions. */
const maxInstructions = 500

/**
 * Maximum length of a pattern with all repetitions expanded, in characters. A longer one exceeds the maximum number of instructions, and would take long to
 * compile.
 */
const maxExpandedLength = 2048

/** Maximum number of Unicode classes in a pattern. The table of each takes 10 KB, and as long to build as 100 characters take to compile. */
const maxClasses = 10
const classWeight = 100

/** Maximum number of character ranges in all instructions of a pattern together. They are sorted before the first match. */
const maxRanges = 100_000

/** Maximum total weight of the patterns of one identity. Compiling the most expensive patterns of this weight blocks the process for about 10 ms. */
export const maxPatternsWeight = 8192

/** Approximate maximum size of all cached patterns, in bytes. */
const cachedBytes = 8 * 1024 * 1024
/** Approximate memory in bytes of an instruction, of a character range, and of the rest of a pattern. */
const [instructionBytes, rangeBytes, patternBytes] = [100, 16, 1024]

/** Limits on the matcher states that a pattern keeps, and on those that it uses during a match, in bytes as the library counts them. */
const keptStateBytes = 16 * 1024
const maxStateBytes = 512 * 1024

/** A compiled pattern, or the reason why the pattern is refused. */
type CompiledPattern = { readonly expression: RE2JS; readonly bytes: number } | { readonly error: string; readonly bytes: number }

const compiled = new RecentMap<string, CompiledPattern>(cachedBytes, ({ bytes }) => bytes)

/** Returns the weight of a pattern: its length in characters with its repetitions expanded. A Unicode class such as `\pL` counts as 100. */
export function patternWeight(pattern: string): number {
  return expandedLength(pattern) + classWeight * unicodeClasses(pattern)
}

/** Returns what is wrong with a pattern, as a predicate such as `must be at most 1024 characters`. Undefined if it is valid. */
export function patternError(pattern: string): string | undefined {
  const found = compile(pattern)
  return 'error' in found ? found.error : undefined
}

/** A valid, compiled pattern. */
export interface BoundedPattern {
  /** Size of the compiled pattern in instructions. */
  readonly size: number
  /** True if the pattern matches the whole of `text`. The time is linear in the length of the text. */
  matches(text: string): boolean
}

/** Returns the compiled pattern; undefined if it is not valid. */
export function boundedPattern(pattern: string): BoundedPattern | undefined {
  const found = compile(pattern)
  if ('error' in found) return undefined
  const { expression } = found
  return { size: expression.programSize(), matches: (text) => tried(expression, text) }
}

/**
 * Matches the text, and then frees most of the library's matcher states. It would keep up to 8 MiB per pattern for the next text, which is not worth the
 * memory.
 */
function tried(expression: RE2JS, text: string): boolean {
  const re2 = expression.re2Input
  if (re2.lazyDFA === null && re2.onepass === null) Object.assign(re2.dfa, { stateBudget: maxStateBytes, memBudget: maxStateBytes })
  const matches = expression.matches(text)
  re2.reset()
  if (re2.lazyDFA !== null && re2.lazyDFA.stateBudget - re2.lazyDFA.memBudget > keptStateBytes) re2.lazyDFA.clearCache()
  return matches
}

function compile(pattern: string): CompiledPattern {
  // Do not cache a pattern that is too long, because it could have any length.
  if (pattern.length > maxLength) return { error: `must be at most ${maxLength} characters`, bytes: 0 }
  const known = compiled.get(pattern)
  if (known !== undefined) return known
  const fresh = compileOnce(pattern)
  compiled.set(pattern, fresh)
  return fresh
}

function compileOnce(pattern: string): CompiledPattern {
  const refused = (error: string): CompiledPattern => ({ error, bytes: patternBytes })
  const early = earlyError(pattern)
  if (early !== undefined) return refused(early)
  let expression: RE2JS
  try {
    expression = RE2JS.compile(pattern)
  } catch {
    // Drop the library's error: the result states the fault.
    return refused('must be a regular expression in RE2 syntax')
  }
  const size = expression.programSize()
  if (size > maxInstructions) return refused(tooLarge)
  const { all, distinct } = rangesOf(expression)
  if (all > maxRanges) return refused(`must have at most ${maxRanges} ranges of characters, counting each repetition`)
  return { expression, bytes: patternBytes + size * instructionBytes + distinct * rangeBytes + keptStateBytes }
}

const tooLarge = `must compile to at most ${maxInstructions} instructions`

/** Returns a fault that is visible without compiling. Compiling such a pattern would take long, or much memory. */
function earlyError(pattern: string): string | undefined {
  if (expandedLength(pattern) > maxExpandedLength) return tooLarge
  if (unicodeClasses(pattern) > maxClasses) return `must have at most ${maxClasses} Unicode classes, such as \\pL`
  // Because of `(?i)`, the library adds the other case of each character in a range.
  if (/\(\?[a-zA-Z]*i/.test(pattern) && pattern.includes('[') && /[^ -~]|\\x\{/.test(pattern))
    return 'must not contain (?i) together with brackets and characters beyond ASCII'
  return undefined
}

/** Returns the approximate length of the pattern with its repetitions expanded. Repetitions of groups may be nested, which multiplies their lengths. */
function expandedLength(pattern: string): number {
  let [length, factor] = [pattern.length, 1]
  for (const [, group, least, most] of pattern.matchAll(/(\)?)\{(\d+)(?:,(\d*))?\}/g)) {
    const count = Math.max(1, Number(least), Number(most ?? 0))
    if (group === ')') factor *= count
    else length += count
  }
  return length * factor
}

function unicodeClasses(pattern: string): number {
  return pattern.match(/\\p/gi)?.length ?? 0
}

/** Returns the number of character ranges in all instructions, and the number in memory. Copies of an instruction share their ranges. */
function rangesOf(expression: RE2JS): { readonly all: number; readonly distinct: number } {
  // The library's type declarations do not describe its instructions.
  const instructions = expression.re2Input.prog.inst as readonly { readonly runes?: ArrayLike<number> | null }[]
  const tables = instructions.flatMap(({ runes }) => (runes === undefined || runes === null ? [] : [runes]))
  const sum = (some: Iterable<ArrayLike<number>>): number => [...some].reduce((total, { length }) => total + length / 2, 0)
  return { all: sum(tables), distinct: sum(new Set(tables)) }
}
