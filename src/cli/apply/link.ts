import { ClientError } from '../client/client-error.ts'
import { keyOfPath, type RecordReference, type WantedRecord } from './wanted.ts'

/** A document with the documents that it refers to. */
export interface LinkedRecord {
  readonly wanted: WantedRecord
  /** Path of the record, or of its group if its kind has no names. It starts with a uid if the document has the uid of the group. */
  readonly path: string
  readonly parent: Target | undefined
  /** By the field (proto name) that holds the uid. */
  readonly references: Readonly<Record<string, Target>>
}

/** A record that a document refers to: another document, or one of the server. */
export interface Target {
  readonly reference: RecordReference
  readonly document: LinkedRecord | undefined
}

/**
 * Finds the documents that documents refer to. Returns them in an order in which each follows those that it refers to. Calls `refuse` for each document
 * with a reference that cannot be found; those that refer to it are left out, too.
 */
export function linkRecords(wanted: readonly WantedRecord[], refuse: (place: string, why: string) => void): LinkedRecord[] {
  return new Linker(wanted, refuse).all()
}

class Linker {
  readonly #wanted: readonly WantedRecord[]
  readonly #refuse: (place: string, why: string) => void
  readonly #byKey = new Map<string, WantedRecord>()
  readonly #paths = new Map<WantedRecord, string>()
  readonly #linked = new Map<WantedRecord, LinkedRecord | undefined>()

  constructor(wanted: readonly WantedRecord[], refuse: (place: string, why: string) => void) {
    this.#wanted = wanted
    this.#refuse = refuse
    for (const one of wanted) if (one.key !== undefined) this.#add(one.key, one)
    for (const one of wanted) {
      if (one.name !== undefined) this.#attempt(one, () => this.#add(keyOfPath(one.writable.kind.kind, this.#pathOf(one, [])), one))
    }
  }

  all(): LinkedRecord[] {
    for (const one of this.#wanted) this.#link(one)
    return [...this.#linked.values()].filter((one) => one !== undefined)
  }

  #attempt(one: WantedRecord, work: () => void): void {
    try {
      work()
    } catch (error) {
      if (!(error instanceof ClientError)) throw error
      // The first reason is enough.
      if (!this.#linked.has(one)) this.#refuse(one.place, error.message)
      this.#linked.set(one, undefined)
    }
  }

  #add(key: string, one: WantedRecord): void {
    const other = this.#byKey.get(key)
    if (other !== undefined && other !== one) throw new ClientError(`describes the same ${one.writable.kind.kind.toLowerCase()} as ${other.place}`)
    this.#byKey.set(key, one)
  }

  /** Returns the path of a record, or of its group if its kind has no names. */
  #pathOf(one: WantedRecord, below: readonly WantedRecord[]): string {
    const known = this.#paths.get(one)
    if (known !== undefined) return known
    if (below.includes(one)) throw new ClientError('spec.parentRef: the groups are in each other')
    const { parent, name } = one
    const document = parent?.key === undefined ? undefined : this.#byKey.get(parent.key)
    // Only an object needs the path of its group: the other documents have it.
    const above = document === undefined || document.key !== parent?.key ? (parent?.text ?? '') : this.#pathOf(document, [...below, one])
    const path = [above, name ?? ''].filter((part) => part !== '').join('/')
    this.#paths.set(one, path)
    return path
  }

  #link(one: WantedRecord): LinkedRecord | undefined {
    if (this.#linked.has(one)) return this.#linked.get(one)
    this.#attempt(one, () => {
      const path = this.#pathOf(one, [])
      const parent = one.parent && this.#target(one.parent)
      const references = Object.entries(one.references).map(([field, reference]) => [field, this.#target(reference)] as const)
      if ([parent, ...references.map(([, target]) => target)].includes('refused')) throw new ClientError('refers to a document with an error')
      // a cast: the refused ones were removed above
      this.#linked.set(one, { wanted: one, path, parent: parent as Target | undefined, references: Object.fromEntries(references) as Record<string, Target> })
    })
    return this.#linked.get(one)
  }

  #target(reference: RecordReference): Target | 'refused' {
    const wanted = reference.key === undefined ? undefined : this.#byKey.get(reference.key)
    if (wanted !== undefined) {
      const document = this.#link(wanted)
      return document === undefined ? 'refused' : { reference, document }
    }
    const { kind, text, field, uid, path } = reference
    if (uid === undefined && path === undefined)
      throw new ClientError(`${field}: there is no document of the ${kind.toLowerCase()} ${text} in this namespace: add it, or use its uid`)
    return { reference, document: undefined }
  }
}
