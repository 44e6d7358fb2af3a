/** Attributes of a span, by the names of OpenTelemetry's semantic conventions or with the prefix `taproot.`. They never contain a credential. */
export type SpanAttributes = Readonly<Record<string, string | number | boolean | undefined>>

/**
 * What begins with a span:
 * - `request`: a request of a client. `traceparent` is its header, which may be invalid. It names the trace, and does not decide whether it is recorded.
 * - `job`: work that no request waits for. `traceparent` is that of the request that caused it.
 * - `client`: a call to another system, as a part of the current work. It has no span if that work has none.
 * - `part`: any other part of the current work.
 */
export interface SpanStart {
  readonly kind: 'request' | 'job' | 'client' | 'part'
  /** Has few values: it contains no uid, path or name of a client. */
  readonly name: string
  readonly attributes?: SpanAttributes
  readonly traceparent?: string | undefined
}

/** A running span. */
export interface Span {
  /** Sets attributes. Ignores undefined values. */
  set(attributes: SpanAttributes): void
  rename(name: string): void
  /** Marks the work as failed. `type` has few values, such as the kind or reason of an error. */
  fail(type: string): void
}

/** The number of recorded spans since the start, by what became of them. */
export interface SpanCounts {
  /** The collector accepted them. */
  readonly sent: number
  /** The collector did not accept them, or did not answer. */
  readonly refused: number
  /** They did not fit into the queue. */
  readonly dropped: number
}

/** Records spans. Code that may run without tracing holds `Tracing | undefined`, so that it costs nothing then. */
export interface Tracing {
  /** Runs `work` in a new span, which ends when the promise settles. If it rejects, the span has failed. Settles like `work`. */
  span<T>(start: SpanStart, work: (span: Span) => Promise<T>): Promise<T>
  /** Sets attributes of the span of the current work, if it has one. */
  annotate(attributes: SpanAttributes): void
  /** The header `traceparent` for a call to another system; undefined if the current work is not recorded. */
  traceparent(): string | undefined
  /** What became of the spans so far. */
  counts(): SpanCounts
}

/** A span that is not recorded. */
export const noSpan: Span = { set() {}, rename() {}, fail() {} }

/** Runs `work` in a new span, or without one if there is no tracing. */
export function inSpan<T>(tracing: Tracing | undefined, start: SpanStart, work: (span: Span) => Promise<T>): Promise<T> {
  return tracing === undefined ? work(noSpan) : tracing.span(start, work)
}
