import type { Uid } from '../../base/uid.ts'

/** The number of images that are scanned one at a time after a stop. */
const alone = 3
const minuteMs = 60_000
/** For how long an image waits after so many stops, and an organisation after so many at its images, in milliseconds. The last one repeats. */
const waitsMs = {
  image: [minuteMs, 5 * minuteMs, 15 * minuteMs, 60 * minuteMs],
  organisation: [0, 0, 0, minuteMs, 5 * minuteMs, 15 * minuteMs, 60 * minuteMs],
} as const
/** After so long without a stop, stops are forgotten, in milliseconds. */
const forgetMs = 120 * minuteMs

interface Stops {
  readonly kind: keyof typeof waitsMs
  readonly count: number
  readonly lastMs: number
}

/**
 * Remembers where a scanner stopped, so that an image at which it crashes does not hold up others, however often it is pushed. After a stop, images are scanned one at a time: only
 * one at which the scanner stops alone is the reason. In memory: a new active worker starts without. Times are those of `performance`.
 */
export class ScanStops {
  #left = 0
  /** By the key of an image, and by organisation. */
  readonly #stops = new Map<string, Stops>()

  /** True if images are scanned one at a time. */
  get isAlone(): boolean {
    return this.#left > 0
  }

  /** Notes that the scanner stopped. */
  stopped(): void {
    this.#left = alone
  }

  /** Notes that a scan ended without a stop. */
  ended(): void {
    this.#left = Math.max(0, this.#left - 1)
  }

  /** Notes that the image with this key is the reason. */
  blame(key: string, root: Uid): void {
    const nowMs = performance.now()
    for (const [other, { lastMs }] of this.#stops) if (nowMs - lastMs > forgetMs) this.#stops.delete(other)
    const note = (name: string, kind: Stops['kind']): void =>
      void this.#stops.set(name, { kind, count: (this.#stops.get(name)?.count ?? 0) + 1, lastMs: nowMs })
    note(key, 'image')
    note(root, 'organisation')
  }

  /** Returns the keys of the images that wait, or the organisations that do. */
  waiting(wanted: Stops['kind']): string[] {
    const nowMs = performance.now()
    const waits = [...this.#stops].filter(([, { kind, count, lastMs }]) => {
      const steps = waitsMs[kind]
      return kind === wanted && nowMs - lastMs < (steps[Math.min(count, steps.length) - 1] ?? 0)
    })
    return waits.map(([name]) => name)
  }
}
