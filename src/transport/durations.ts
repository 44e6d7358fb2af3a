import { Registry } from 'prom-client'

/** What a histogram of durations measures. */
interface DurationsOptions {
  readonly name: string
  readonly help: string
  /** Upper bounds in seconds, ascending. */
  readonly buckets: readonly number[]
  readonly registry: MetricsRegistry
}

/** Counts a duration in seconds. */
export type CountDuration = (seconds: number) => void

interface Series {
  /** `name="value"` of each label, with commas. */
  readonly labels: string
  /** The number of durations in each bucket, and then of those above the highest bound. */
  readonly counts: number[]
  sum: number
}

const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')

/**
 * A Prometheus histogram of durations. Each request counts several, and most lines of the page of metrics are buckets. The histogram of prom-client looks up
 * the labels for each value, and formats them for each line. It takes 50 times as long to count, and four times as long for a page.
 */
export class Durations<Label extends string> {
  readonly #options: DurationsOptions
  /** By the text of their labels. */
  readonly #series = new Map<string, Series>()

  constructor(options: DurationsOptions) {
    this.#options = options
    options.registry.durations.push(this)
  }

  /** Returns what counts in the series with these labels. A new series starts at 0. Keep the result, because a look-up takes longer than counting. */
  series(labels: Readonly<Record<Label, string>>): CountDuration {
    const { buckets } = this.#options
    const pairs = Object.entries<string>(labels).map(([label, value]) => `${label}="${escaped(value).replaceAll('"', '\\"')}"`)
    const text = pairs.join(',')
    const series = this.#series.get(text) ?? { labels: text, counts: new Array<number>(buckets.length + 1).fill(0), sum: 0 }
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
    const { name, help, buckets } = this.#options
    const starts = [...buckets.map(String), '+Inf'].map((bound) => `${name}_bucket{le="${bound}",`)
    let text = `# HELP ${name} ${escaped(help)}\n# TYPE ${name} histogram\n`
    for (const { labels, counts, sum } of this.#series.values()) {
      let total = 0
      for (const [bucket, start] of starts.entries()) text += `${start}${labels}} ${(total += counts[bucket] ?? 0)}\n`
      text += `${name}_sum{${labels}} ${sum}\n${name}_count{${labels}} ${total}\n`
    }
    return text
  }
}

/** The metrics of a process: those of prom-client, and histograms of durations. */
export class MetricsRegistry extends Registry {
  readonly durations: Pick<Durations<never>, 'text'>[] = []

  /** Resolves with the page of all metrics in the text format of Prometheus. */
  override async metrics(): Promise<string> {
    return [await super.metrics(), ...this.durations.map((durations) => durations.text())].join('\n')
  }
}
