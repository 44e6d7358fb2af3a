import type { Attributes, Counter, Meter, MeterProvider } from '@opentelemetry/api'
import type { SpanCounts } from '../../base/tracing.ts'

/** The counter of the SDK of spans that left its queue, or did not get into it. */
const processed = 'otel.sdk.processor.span.processed'

/** Counts what becomes of spans, from what the SDK tells about itself. Keeps no other of its metrics. */
export class SpanCounter implements MeterProvider {
  readonly #noop: Meter
  readonly #counts = { sent: 0, refused: 0, dropped: 0 }

  /** `noop` is a meter that does nothing. */
  constructor(noop: Meter) {
    this.#noop = noop
  }

  get counts(): SpanCounts {
    return this.#counts
  }

  getMeter(): Meter {
    const add = (count: number, attributes?: Attributes): void => {
      const error = attributes?.['error.type']
      this.#counts[error === undefined ? 'sent' : error === 'queue_full' ? 'dropped' : 'refused'] += count
    }
    const createCounter = (name: string): Counter => (name === processed ? { add } : this.#noop.createCounter(name))
    // The other members of a meter are methods of its prototype.
    return Object.assign(Object.create(this.#noop) as Meter, { createCounter })
  }
}
