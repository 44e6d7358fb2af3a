import { RE2JS } from 're2js'
import { RecentMap } from '../../base/recent-map.ts'

/** The longest pattern, in characters. */
const maxLength = 1024

/** Compiled size, in instructions. */
const maxInstructions = 500

/** Length with all repetitions written out, in characters: what is longer has more instructions than it may, and would take long to be compiled. */
const maxExpandedLength = 2048

/** Tables of Unicode classes are 10 KB each, and take as long to build as 100 characters take to be compiled. */
const maxClasses = 10
const classWeight = 100

/** The ranges of all instructions together: to match, they are sorted once. */
const maxRanges = 100_000

/** What the patterns of one identity may weigh together. To compile the dearest of that weight takes about 10 ms, in which the process does nothing else. */
export const maxPatternsWeight = 8192

/** Approximate maximum size of all cached patterns, in bytes. */
const cachedBytes = 8 * 1024 * 1024
/** Approximate bytes of an instruction, of a range, and of the rest of a pattern. */
const [instructionBytes, rangeBytes, patternBytes] = [100, 16, 1024]

/** Limits on the states that a pattern keeps, and on those it uses during a match, in bytes as the library counts them. */
const keptStateBytes = 16 * 1024
const maxStateBytes = 512 * 1024

/** A pattern that can be tried, or why it can't be. */
type CompiledPattern = { readonly expression: RE2JS; readonly bytes: number } | { readonly error: string; readonly bytes: number }

const compiled = new RecentMap<string, CompiledPattern>(cachedBytes, ({ bytes }) => bytes)

/** What a pattern costs: its characters with its repetitions written out, a Unicode class such as `\pL` counting as 100. */
export function patternWeight(pattern: string): number {
  return expandedLength(pattern) + classWeight * unicodeClasses(pattern)
}

/** What is wrong with a pattern, as a predicate that names the limit; undefined where nothing is. */
export function patternError(pattern: string): string | undefined {
  const found = compile(pattern)
  return 'error' in found ? found.error : undefined
}

/** A pattern that can be tried. */
export interface BoundedPattern {
  /** In instructions. */
  readonly size: number
  /** True where the whole of `text` matches. Linear in the text. */
  matches(text: string): boolean
}

/** The pattern, compiled; undefined where it has a fault. */
export function boundedPattern(pattern: string): BoundedPattern | undefined {
  const found = compile(pattern)
  if ('error' in found) return undefined
  const { expression } = found
  return { size: expression.programSize(), matches: (text) => tried(expression, text) }
}

/** Matches the text. The library keeps up to 8 MiB of a pattern's states for the next text. More than a few are not worth their memory. */
function tried(expression: RE2JS, text: string): boolean {
  const re2 = expression.re2Input
  if (re2.lazyDFA === null && re2.onepass === null) Object.assign(re2.dfa, { stateBudget: maxStateBytes, memBudget: maxStateBytes })
  const matches = expression.matches(text)
  re2.reset()
  if (re2.lazyDFA !== null && re2.lazyDFA.stateBudget - re2.lazyDFA.memBudget > keptStateBytes) re2.lazyDFA.clearCache()
  return matches
}

function compile(pattern: string): CompiledPattern {
  // A text of any length must not be remembered.
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
    // Not an expression: the result says so.
    return refused('must be a regular expression in RE2 syntax')
  }
  const size = expression.programSize()
  if (size > maxInstructions) return refused(tooLarge)
  const { all, distinct } = rangesOf(expression)
  if (all > maxRanges) return refused(`must have at most ${maxRanges} ranges of characters, counting each repetition`)
  return { expression, bytes: patternBytes + size * instructionBytes + distinct * rangeBytes + keptStateBytes }
}

const tooLarge = `must compile to at most ${maxInstructions} instructions`

/** What shows without compiling: each of these would take long, or much memory. */
function earlyError(pattern: string): string | undefined {
  if (expandedLength(pattern) > maxExpandedLength) return tooLarge
  if (unicodeClasses(pattern) > maxClasses) return `must have at most ${maxClasses} Unicode classes, such as \\pL`
  // The library folds the case of each character of a range.
  if (/\(\?[a-zA-Z]*i/.test(pattern) && pattern.includes('[') && /[^ -~]|\\x\{/.test(pattern))
    return 'must not ignore case, by (?i), where brackets and characters beyond ASCII are used'
  return undefined
}

/** About how long the pattern is once its repetitions are written out: the counts behind groups may be nested, and multiply all that there is. */
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

/** How many ranges the instructions have, and how many there are in memory: copies share theirs. */
function rangesOf(expression: RE2JS): { readonly all: number; readonly distinct: number } {
  // Types of the library end at its instructions.
  const instructions = expression.re2Input.prog.inst as readonly { readonly runes?: ArrayLike<number> | null }[]
  const tables = instructions.flatMap(({ runes }) => (runes === undefined || runes === null ? [] : [runes]))
  const sum = (some: Iterable<ArrayLike<number>>): number => [...some].reduce((total, { length }) => total + length / 2, 0)
  return { all: sum(tables), distinct: sum(new Set(tables)) }
}
