import type { Resource, CachedRecord } from '../cache/records/cached-record.ts'
import type { Shown, Services } from './services.ts'
import type { AnyKind, RenderFacts, Records } from './kind.ts'

/** The services that rendering a record needs. */
export type Viewing = Pick<Services, 'cache' | 'grants' | 'settings' | 'clock'>

/** A check of one input of a rendered record. It returns true while the input is unchanged. */
type Joined = (facts: RenderFacts) => boolean

class ShownRecord implements Shown {
  readonly message: Resource
  readonly #joined: readonly Joined[]
  json?: string
  binary?: Uint8Array

  constructor(message: Resource, joined: readonly Joined[]) {
    this.message = message
    this.#joined = joined
  }

  /** True while all inputs of the rendered record are unchanged. */
  isCurrent(facts: RenderFacts): boolean {
    return this.#joined.every((isSame) => isSame(facts))
  }
}

/** Returns the current facts on which a rendered record may depend. */
export function factsOf({ cache, grants, settings, clock }: Viewing): RenderFacts {
  return { tables: cache.tables, grants, settings, nowMs: clock.now() }
}

/** Returns access to the current records that rendering joins. */
export function recordsOf(services: Viewing): Records {
  const facts = factsOf(services)
  const { tables } = facts
  return { get: (kind, uid) => tables.get(kind, uid), entry: (key) => tables.entry(key), ask: (question) => question(facts) }
}

/** Returns the record as readers see it now: with joined data, and without secrets. */
export function rendered(kind: AnyKind, services: Viewing, record: Resource): Resource {
  return kind.render === undefined ? record : kind.render(recordsOf(services), record)
}

/** Returns the record as the answer of Get, or of a write, shows it now. It may contain more than in a list. */
export function renderedAlone(kind: AnyKind, services: Viewing, record: Resource): Resource {
  const shown = rendered(kind, services, record)
  return kind.renderAlone === undefined ? shown : kind.renderAlone(recordsOf(services), shown, factsOf(services))
}

/** Returns a record as readers see it now. Reuses an earlier result while neither the record nor the inputs of the result changed. */
export function shownOf(kind: AnyKind, services: Viewing, record: CachedRecord): Shown {
  const facts = factsOf(services)
  const { derived } = record
  if (derived instanceof ShownRecord && derived.isCurrent(facts)) return derived
  const { tables } = facts
  const joined: Joined[] = []
  const records: Records = {
    get(joinedKind, uid) {
      const found = tables.get(joinedKind, uid)
      joined.push((later) => later.tables.get(joinedKind, uid) === found)
      return found
    },
    entry(key) {
      const found = tables.entry(key)
      joined.push((later) => later.tables.entry(key) === found)
      return found
    },
    ask(question) {
      const answer = question(facts)
      joined.push((later) => question(later) === answer)
      return answer
    },
  }
  const shown = new ShownRecord(kind.render === undefined ? record.message : kind.render(records, record.message), joined)
  record.derived = shown
  return shown
}
