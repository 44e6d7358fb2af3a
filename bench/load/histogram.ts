/** Number of buckets per factor of e, so that each bucket is 2 % wide. */
const resolution = 50
const buckets = 1000

/** Latencies, counted in buckets. `counts` is a plain array, so that it can be sent between processes. */
export class Histogram {
  readonly counts: number[]

  constructor(counts: number[] = Array.from({ length: buckets }, () => 0)) {
    this.counts = counts
  }

  /** Counts one latency, in milliseconds. */
  add(milliseconds: number): void {
    const at = Math.min(buckets - 1, Math.max(0, Math.round(Math.log(milliseconds * 1000) * resolution)))
    this.counts[at] = (this.counts[at] ?? 0) + 1
  }

  merge(other: Histogram): void {
    for (const [at, count] of other.counts.entries()) this.counts[at] = (this.counts[at] ?? 0) + count
  }

  get total(): number {
    return this.counts.reduce((sum, count) => sum + count, 0)
  }

  /** Returns the latency in milliseconds that the share `quantile` of all latencies does not exceed; NaN if none was counted. */
  at(quantile: number): number {
    let left = this.total * quantile
    for (const [at, count] of this.counts.entries()) {
      left -= count
      if (count > 0 && left <= 0) return Math.exp(at / resolution) / 1000
    }
    return NaN
  }
}
