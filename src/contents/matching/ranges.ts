import type { ReadVersion, VersionOrder } from '../../base/versions/version-order.ts'
import { goOrder, semanticOrder } from '../../base/versions/semantic-version.ts'
import type { OsvRange, OsvVersions } from '../../catalogue/index.ts'
import type { SubjectVersion } from './subject.ts'

/** Where a range begins or ends. `at` is undefined for the beginning of all versions. */
interface Bound {
  readonly kind: 'introduced' | 'fixed' | 'last_affected'
  readonly at: ReadVersion | undefined
}

interface VersionRange {
  readonly order: VersionOrder
  /** In the order of their versions. */
  readonly bounds: readonly Bound[]
  /** A version is in the range only before one of these, if there are any. */
  readonly limits: readonly ReadVersion[]
  /** True if a bound is no version: then the range says nothing about any version. */
  readonly isUnreadable: boolean
}

/** Affected versions, read to be compared with many packages. */
export interface AffectedVersions {
  readonly order: VersionOrder
  readonly ranges: readonly VersionRange[]
  /** Single versions as they are written. */
  readonly texts: ReadonlySet<string>
  /** The same, oldest first. */
  readonly singles: readonly ReadVersion[]
  /** True if all versions are affected. */
  readonly isAll: boolean
}

/** What affected versions say about one version. */
export type RangeAnswer =
  | { readonly says: 'listed' | 'inside'; /** The next version that has the fix; empty if none is known. */ readonly fixedVersion: string }
  | { readonly says: 'after'; /** The version that had the fix. */ readonly fixedVersion: string }
  | { readonly says: 'outside' | 'unreadable'; readonly fixedVersion: '' }

const boundKinds = ['introduced', 'fixed', 'last_affected'] as const

/** Returns below 0 for the bound that comes first. Bounds of one version stay as they are written. */
function compareBounds({ at: a }: Bound, { at: b }: Bound): number {
  if (a === undefined || b === undefined) return (a === undefined ? 0 : 1) - (b === undefined ? 0 : 1)
  return a.compareTo(b)
}

function rangeOf({ type, events }: OsvRange, ecosystemOrder: VersionOrder): VersionRange {
  const order = type === 'SEMVER' && ecosystemOrder !== goOrder ? semanticOrder : ecosystemOrder
  let isUnreadable = false
  const read = (text: string): ReadVersion | undefined => {
    const found = order.read(text)
    isUnreadable ||= found === undefined
    return found
  }
  const bounds: Bound[] = []
  for (const event of events) {
    for (const kind of boundKinds) {
      const text = event[kind]
      if (text !== undefined) bounds.push({ kind, at: kind === 'introduced' && text === '0' ? undefined : read(text) })
    }
  }
  const limitTexts = events.flatMap(({ limit }) => limit ?? [])
  const limits = limitTexts.includes('*') ? [] : limitTexts.map(read).filter((limit) => limit !== undefined)
  return { order, bounds: isUnreadable ? [] : bounds.sort(compareBounds), limits, isUnreadable }
}

/** Returns affected versions to compare with packages. Undefined if they are commits only: these say nothing about packages. */
export function affectedVersionsOf({ ranges, versions }: OsvVersions, order: VersionOrder): AffectedVersions | undefined {
  const ofPackages = ranges.filter(({ type }) => type !== 'GIT')
  if (ofPackages.length === 0 && versions.length === 0 && ranges.length > 0) return undefined
  const singles = versions.map((text) => order.read(text)).filter((version) => version !== undefined)
  return {
    order,
    ranges: ofPackages.map((range) => rangeOf(range, order)),
    texts: new Set(versions),
    singles: singles.sort((a, b) => a.compareTo(b)),
    isAll: ofPackages.length === 0 && versions.length === 0,
  }
}

/** Returns the version that has the fix and is the next after `version`. Empty if there is none. */
function nextFix({ bounds }: VersionRange, version: ReadVersion): string {
  return bounds.find(({ kind, at }) => kind === 'fixed' && at !== undefined && at.compareTo(version) > 0)?.at?.text ?? ''
}

/** True if a version is at the bound or after it. The last affected version is not after itself. */
function isPast(version: ReadVersion, { kind, at }: Bound): boolean {
  if (at === undefined) return true
  return kind === 'last_affected' ? version.compareTo(at) > 0 : version.compareTo(at) >= 0
}

/** Returns what one range says (https://ossf.github.io/osv-schema/#evaluation). */
function answerOfRange(range: VersionRange, subject: SubjectVersion): RangeAnswer {
  const { order, bounds, limits, isUnreadable } = range
  const version = subject.in(order)
  if (version === undefined || isUnreadable) return { says: 'unreadable', fixedVersion: '' }
  const last = bounds.findLast((bound) => isPast(version, bound))
  if (last?.kind === 'fixed') return { says: 'after', fixedVersion: last.at?.text ?? '' }
  const isBeforeLimits = limits.length === 0 || limits.some((limit) => version.compareTo(limit) < 0)
  if (last?.kind !== 'introduced' || !isBeforeLimits) return { says: 'outside', fixedVersion: '' }
  return { says: 'inside', fixedVersion: nextFix(range, version) }
}

/** True if a version is one of the single ones, whatever its spelling. */
function isListed({ order, texts, singles }: AffectedVersions, subject: SubjectVersion): boolean {
  if (texts.has(subject.text)) return true
  const version = subject.in(order)
  if (version === undefined) return false
  let [low, high] = [0, singles.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((singles[middle]?.compareTo(version) ?? 0) < 0) low = middle + 1
    else high = middle
  }
  for (let at = low; singles[at]?.compareTo(version) === 0; at++) if (singles[at]?.isSameAs(version) === true) return true
  return false
}

/** The answers, the one that counts first. */
const strength = ['listed', 'inside', 'unreadable', 'after', 'outside'] as const satisfies readonly RangeAnswer['says'][]

/** Returns what several statements say together. A version that one of them affects is affected. */
export function answerOf(all: readonly AffectedVersions[], subject: SubjectVersion): RangeAnswer {
  const answers = all.flatMap((affected): RangeAnswer[] => {
    if (affected.isAll) return [{ says: 'inside', fixedVersion: '' }]
    const ofRanges = affected.ranges.map((range) => answerOfRange(range, subject))
    if (ofRanges.length === 0 && subject.in(affected.order) === undefined) ofRanges.push({ says: 'unreadable', fixedVersion: '' })
    if (!isListed(affected, subject)) return ofRanges
    const fixedVersion = ofRanges.find(({ says }) => says === 'inside')?.fixedVersion ?? ''
    return [{ says: 'listed', fixedVersion }, ...ofRanges]
  })
  return answers.sort((a, b) => strength.indexOf(a.says) - strength.indexOf(b.says))[0] ?? { says: 'outside', fixedVersion: '' }
}
