import type { TaskTurn } from '../../base/task-thread.ts'

/** An end in the life of a cycle: its day, e.g. `2026-01-31`, or whether it has come if the day is not known. */
export type LifecycleEnd = { readonly day: string } | { readonly hasCome: boolean }

/** True if an end has come at a day. The last day belongs to the life. Undefined if it is not known. */
export function hasCome(end: LifecycleEnd | undefined, today: string): boolean | undefined {
  if (end === undefined) return undefined
  return 'day' in end ? today > end.day : end.hasCome
}

/** Returns the day of an end; empty if it is not known. */
export function dayOf(end: LifecycleEnd | undefined): string {
  return end !== undefined && 'day' in end ? end.day : ''
}

/** A cycle of a product: versions that are supported together. Days are in UTC, e.g. `2026-01-31`. */
export interface LifecycleCycle {
  /** The first part of its versions, e.g. `3.12`. */
  readonly cycle: string
  /** Its name for people; the same as `cycle` if it has none. */
  readonly label: string
  /** Empty if it has none. */
  readonly codename: string
  readonly releaseDay?: string
  /** True if it has long-term support, now or from a day on. */
  readonly isLts: boolean
  readonly ltsDay?: string
  /** The end of active support. Only security problems are fixed afterwards. */
  readonly supportEnd?: LifecycleEnd
  /** The end of life. Nothing is fixed afterwards, except for extended support. */
  readonly lifeEnd?: LifecycleEnd
  /** The end of extended support; undefined if there is none. */
  readonly extendedEnd?: LifecycleEnd
  /** The newest version of the cycle; empty if it is not known. */
  readonly latest: string
  readonly latestDay?: string
  /** A page about the newest version; empty if there is none. */
  readonly link: string
}

/** What a source says about a product as a whole. */
export interface LifecycleProduct {
  readonly name: string
  readonly label: string
  /** E.g. `lang`; empty if it is not known. */
  readonly category: string
  readonly aliases: readonly string[]
  /** Package URLs of its packages, in canonical form, without version, qualifiers and subpath. */
  readonly purls: readonly string[]
}

/** A version of a product. */
export interface ProductVersion {
  /** The name or an alias of the product, without regard to case, or a package URL in canonical form. */
  readonly product: string
  /** A version, or the codename of a cycle. A `v` before the first digit is ignored. */
  readonly version: string
}

/** The cycle of a version, and the product that it belongs to. */
export interface FoundCycle extends LifecycleCycle {
  readonly product: string
}

/** What a catalogue knows of a version of a product. */
export type CycleAnswer = FoundCycle | 'unknown version' | undefined

/** A product and all its cycles, newest first. */
export interface FoundProduct {
  readonly product: string
  readonly cycles: readonly LifecycleCycle[]
  /** When the catalogue was imported, in milliseconds since 1970. */
  readonly importedMs: number
}

/** The dates of products. They do not lie in the store (docs/adr/0033). All answers come from one state. */
export interface LifecycleSource {
  /**
   * Resolves with the cycle of each version, in the order of `versions`. It is the longest one that the version begins with. A number in it must not go on.
   * `unknown version` for a version that no cycle of the product has; undefined for an unknown product. Queries of several organisations, the keys of `turn`, take turns.
   */
  cyclesOf(versions: readonly ProductVersion[], turn: TaskTurn): Promise<readonly CycleAnswer[]>
  /** Resolves with the product that a name, an alias or a package URL means; undefined for an unknown one. */
  productNamed(name: string, turn: TaskTurn): Promise<FoundProduct | undefined>
}
