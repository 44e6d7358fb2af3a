import type { Resource, Row } from '../snapshot/row.ts'
import type { Snapshot } from '../snapshot/snapshot.ts'
import type { Shown } from './answer-forms.ts'
import type { Alone, AnyKind, Records } from './kind.ts'

/** Something that was looked at while a record was rendered: true while it is as it was then. */
type Joined = (snapshot: Snapshot) => boolean

class ShownRow implements Shown {
  readonly message: Resource
  readonly #joined: readonly Joined[]
  json?: string
  binary?: Uint8Array

  constructor(message: Resource, joined: readonly Joined[]) {
    this.message = message
    this.#joined = joined
  }

  /** True while all that was joined in is as it was. */
  isCurrent(snapshot: Snapshot): boolean {
    return this.#joined.every((isSame) => isSame(snapshot))
  }
}

/** What is shown for a record as of `snapshot`. */
export function rendered(kind: AnyKind, snapshot: Records, record: Resource): Resource {
  return kind.render === undefined ? record : kind.render(snapshot, record)
}

/** What is shown for a record by itself. */
export function renderedAlone(kind: AnyKind, snapshot: Records, source: Alone & { record: Resource }): Resource {
  const shown = rendered(kind, snapshot, source.record)
  return kind.renderAlone === undefined ? shown : kind.renderAlone(snapshot, shown, source)
}

/** What is shown for a row as of `snapshot`: what was made before, as long as neither the record nor what is joined in has changed. */
export function shownOf(kind: AnyKind, snapshot: Snapshot, row: Row): Shown {
  const { derived } = row
  if (derived instanceof ShownRow && derived.isCurrent(snapshot)) return derived
  const joined: Joined[] = []
  const records: Records = {
    get(joinedKind, uid) {
      const found = snapshot.get(joinedKind, uid)
      joined.push((later) => later.get(joinedKind, uid) === found)
      return found
    },
    entry(key) {
      const found = snapshot.entry(key)
      joined.push((later) => later.entry(key) === found)
      return found
    },
  }
  const shown = new ShownRow(rendered(kind, records, row.message), joined)
  row.derived = shown
  return shown
}
