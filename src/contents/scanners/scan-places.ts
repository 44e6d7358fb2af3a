import type { Services } from '../../engine/services.ts'
import { lineage, rootOf, trustedUid, type Uid } from '../../base/uid.ts'
import { isImageRecord, type RepoDelegate } from '../../registry/index.ts'
import { entriesOf } from '../../store/pages.ts'
import type { Write } from '../../store/store.ts'
import type { ImageQueue } from '../image-queue.ts'
import { knownScannerPrefix } from './gone-scanners.ts'

/** The rest after a request for all images of an organisation, in times of what it took. Its members may grant and withdraw rights as often as they like. */
const rest = 60
/** Number of keys that one transaction writes. */
const keysAtOnce = 100

/** What finding the places needs. */
export interface ScanPlacesOptions {
  readonly services: Pick<Services, 'store' | 'log'>
  readonly delegate: RepoDelegate
  readonly queue: ImageQueue
  /** The name of the scanner. */
  readonly name: string
}

/**
 * The groups where a scanner may pull and push. Where it gets these rights, also by a new configuration or once an organisation is not suspended any more, it is
 * asked for all images. The store has a key for each such group.
 */
export class ScanPlaces {
  readonly #options: ScanPlacesOptions
  readonly #prefix: string
  /** The groups whose images were asked for; the empty text for the whole platform. */
  #held = new Set<string>()
  /** The rights as of the last look. */
  #seen: readonly string[] = []
  /** The signal of the leadership in which `#held` was read: another process may have changed it before. */
  #readIn: AbortSignal | undefined
  /** Until when all images of an organisation are not asked for again, on the clock of `performance`. */
  readonly #restMs = new Map<string, number>()

  constructor(options: ScanPlacesOptions) {
    this.#options = options
    this.#prefix = `${knownScannerPrefix}${options.name}/`
  }

  /** Returns false if the scanner had no rights in the repo at the last look. What changed since is asked for at the next one. `signal` is that of the leadership. */
  mayCover(repo: Uid, signal: AbortSignal): boolean {
    return this.#readIn !== signal || this.#isBelow(repo)
  }

  /** Asks for the images of groups that are new. `signal` is that of the leadership. Rejects if the identity does not exist, with StoreError, or the signal's reason. */
  async look(signal: AbortSignal): Promise<void> {
    const { store, log } = this.#options.services
    if (this.#readIn !== signal) {
      const held = new Set<string>()
      for await (const { key } of entriesOf(store, { prefix: this.#prefix }, signal)) held.add(key.slice(this.#prefix.length))
      this.#held = held
      this.#seen = []
      this.#readIn = signal
    }
    const places = this.#current()
    if (places.length === this.#seen.length && places.every((place, at) => place === this.#seen[at])) return
    const current = new Set<string>(places)
    const lost = [...this.#held].filter((place) => !current.has(place))
    const fresh = places.filter((place) => !this.#held.has(place))
    const later = fresh.filter((place) => !this.#isBelow(place) && !this.#isDue(place))
    const held = fresh.filter((place) => !later.includes(place))
    const asked = held.filter((place) => !this.#isBelow(place))
    // One that was lost is forgotten first: if the process ends in between, it is asked for again.
    await this.#write(lost, 'delete', signal)
    for (const place of asked) {
      const startMs = performance.now()
      await this.#options.queue.askForAll(signal, { group: place, isWanted: isImageRecord })
      const endMs = performance.now()
      this.#restMs.set(organisationOf(place), endMs + rest * (endMs - startMs))
    }
    await this.#write(held, 'put', signal)
    if (later.length === 0) this.#seen = places
    if (lost.length + held.length > 0)
      log.info('the groups of a scanner changed', { scanner: this.#options.name, groups: this.#held.size, asked: asked.length })
  }

  #current(): readonly string[] {
    const { delegate, name } = this.#options
    try {
      return delegate.placesWith(['pull', 'push'])
    } catch (error) {
      throw new Error(`scanner ${name} cannot be used: its identity does not exist`, { cause: error })
    }
  }

  #isBelow(place: string): boolean {
    return this.#held.has('') || (place !== '' && [...lineage(trustedUid(place))].some((above) => this.#held.has(above)))
  }

  #isDue(place: string): boolean {
    return performance.now() >= (this.#restMs.get(organisationOf(place)) ?? 0)
  }

  async #write(places: readonly string[], kind: 'put' | 'delete', signal: AbortSignal): Promise<void> {
    for (let at = 0; at < places.length; at += keysAtOnce) {
      const some = places.slice(at, at + keysAtOnce)
      const writes = some.map((place): Write => {
        const key = `${this.#prefix}${place}`
        return kind === 'put' ? { kind, key, value: new Uint8Array() } : { kind, key }
      })
      await this.#options.services.store.transact({ guards: [], writes }, signal)
      for (const place of some) {
        if (kind === 'put') this.#held.add(place)
        else this.#held.delete(place)
      }
    }
  }
}

function organisationOf(place: string): string {
  return place === '' ? '' : rootOf(trustedUid(place))
}
