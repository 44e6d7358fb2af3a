import type { Resource, Row } from '../snapshot/row.ts'
import type { Snapshot } from '../snapshot/snapshot.ts'
import type { Shown } from './answer-forms.ts'
import type { AnyKind, Records } from './kind.ts'

/** One record that was looked at while another was rendered, as it was then. */
interface Joined {
  readonly kind: string
  readonly uid: string
  readonly row: Row | undefined
}

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
    for (const { kind, uid, row } of this.#joined) if (snapshot.get(kind, uid) !== row) return false
    return true
  }
}

/** What is shown for a record as of `snapshot`. */
export function rendered(kind: AnyKind, snapshot: Records, record: Resource): Resource {
  return kind.render === undefined ? record : kind.render(snapshot, record)
}

/** What is shown for a row as of `snapshot`: what was made before, as long as neither the record nor what is joined in has changed. */
export function shownOf(kind: AnyKind, snapshot: Snapshot, row: Row): Shown {
  const { derived } = row
  if (derived instanceof ShownRow && derived.isCurrent(snapshot)) return derived
  const joined: Joined[] = []
  const records: Records = {
    get(joinedKind, uid) {
      const found = snapshot.get(joinedKind, uid)
      joined.push({ kind: joinedKind, uid, row: found })
      return found
    },
  }
  const shown = new ShownRow(rendered(kind, records, row.message), joined)
  row.derived = shown
  return shown
}
