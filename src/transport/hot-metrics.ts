import { Registry } from 'prom-client'

/** Name, help and place of a metric. */
interface MetricOptions {
  readonly name: string
  readonly help: string
  readonly registry: MetricsRegistry
}

/** A metric that writes its own lines. */
interface OwnMetric {
  text(): string
}

/** Counts a duration in seconds. */
export type CountDuration = (seconds: number) => void

interface DurationSeries {
  /** The number of durations in each bucket, and then of those above the highest bound. */
  readonly counts: number[]
  sum: number
}

const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')

const labelText = (labels: Readonly<Record<string, string>>): string =>
  Object.entries(labels)
    .map(([label, value]) => `${label}="${escaped(value).replaceAll('"', '\\"')}"`)
    .join(',')

const headOf = ({ name, help }: MetricOptions, type: string): string => `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n`

/**
 * A Prometheus histogram of durations, for what each request counts. Most lines of the page of metrics are its buckets. The histogram of prom-client looks up
 * the labels for each value, and formats them for each line. It takes 50 times as long to count, and four times as long for a page.
 */
export class Durations<Label extends string> implements OwnMetric {
  readonly #options: MetricOptions & { readonly buckets: readonly number[] }
  /** By the text of their labels. */
  readonly #series = new Map<string, DurationSeries>()

  /** `buckets` are upper bounds in seconds, ascending. */
  constructor(options: MetricOptions & { readonly buckets: readonly number[] }) {
    this.#options = options
    options.registry.own.push(this)
  }

  /** Returns what counts in the series with these labels. A new series starts at 0. Keep the result, because a look-up takes longer than counting. */
  series(labels: Readonly<Record<Label, string>>): CountDuration {
    const { buckets } = this.#options
    const text = labelText(labels)
    const series = this.#series.get(text) ?? { counts: new Array<number>(buckets.length + 1).fill(0), sum: 0 }
    this.#series.set(text, series)
    return (seconds) => {
      let bucket = 0
      // false for the place after the last bucket
      while (seconds > (buckets[bucket] ?? Infinity)) bucket++
      series.counts[bucket] = (series.counts[bucket] ?? 0) + 1
      series.sum += seconds
    }
  }

  /** Returns the lines of this histogram in the text format of Prometheus. */
  text(): string {
    const { name, buckets } = this.#options
    const starts = [...buckets.map(String), '+Inf'].map((bound) => `${name}_bucket{le="${bound}",`)
    let text = headOf(this.#options, 'histogram')
    for (const [labels, { counts, sum }] of this.#series) {
      let total = 0
      for (const [bucket, start] of starts.entries()) text += `${start}${labels}} ${(total += counts[bucket] ?? 0)}\n`
      text += `${name}_sum{${labels}} ${sum}\n${name}_count{${labels}} ${total}\n`
    }
    return text
  }
}

/** A Prometheus counter for what each request counts. The counter of prom-client takes many times as long to count. */
export class Counts<Label extends string> implements OwnMetric {
  readonly #options: MetricOptions
  /** By the text of their labels. */
  readonly #series = new Map<string, { count: number }>()

  constructor(options: MetricOptions) {
    this.#options = options
    options.registry.own.push(this)
  }

  /** Returns what adds to the series with these labels: 1, or the number that is given. A new series starts at 0. Keep the result. */
  series(labels: Readonly<Record<Label, string>>): (added?: number) => void {
    const text = labelText(labels)
    const series = this.#series.get(text) ?? { count: 0 }
    this.#series.set(text, series)
    return (added = 1) => void (series.count += added)
  }

  /** Returns the lines of this counter in the text format of Prometheus. */
  text(): string {
    const lines = [...this.#series].map(([labels, { count }]) => `${this.#options.name}{${labels}} ${count}\n`)
    return headOf(this.#options, 'counter') + lines.join('')
  }
}

/** The metrics of a process: those of prom-client, and those of this file. */
export class MetricsRegistry extends Registry {
  readonly own: OwnMetric[] = []

  /** Resolves with the page of all metrics in the text format of Prometheus. */
  override async metrics(): Promise<string> {
    return [await super.metrics(), ...this.own.map((metric) => metric.text())].join('\n')
  }
}
