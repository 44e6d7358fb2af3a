/** A value at a time in milliseconds. */
export interface Point {
  readonly atMs: number
  readonly value: number
}

/** The slope of the line that fits the points best, in units per hour; 0 for fewer than two. */
export function slopePerHour(points: readonly Point[]): number {
  const count = points.length
  const meanAt = points.reduce((sum, { atMs }) => sum + atMs, 0) / count
  const meanValue = points.reduce((sum, { value }) => sum + value, 0) / count
  const spread = points.reduce((sum, { atMs }) => sum + (atMs - meanAt) ** 2, 0)
  if (count < 2 || spread === 0) return 0
  return (3_600_000 * points.reduce((sum, { atMs, value }) => sum + (atMs - meanAt) * (value - meanValue), 0)) / spread
}

/** A limit of growth. */
export interface Bound {
  readonly perHour: number
  /** Growth that counts as noise, regardless of its time span. */
  readonly noise: number
}

/** The growth of one measure. */
export interface Growth {
  readonly slopePerHour: number
  /** Growth along the fitted line over the observed time. */
  readonly grown: number
  readonly allowed: number
  readonly within: boolean
}

/** Uses the last three quarters of the time, since caches fill before. */
export function growthOf(points: readonly Point[], bound: Bound): Growth {
  const first = points[0]?.atMs ?? 0
  const last = points.at(-1)?.atMs ?? 0
  const looked = points.filter(({ atMs }) => atMs >= first + (last - first) / 4)
  const hours = (last - (looked[0]?.atMs ?? last)) / 3_600_000
  const slope = slopePerHour(looked)
  const allowed = Math.max(bound.noise, bound.perHour * hours)
  return { slopePerHour: slope, grown: slope * hours, allowed, within: slope * hours <= allowed }
}
