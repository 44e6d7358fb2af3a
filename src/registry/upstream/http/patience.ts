/** How long the upstream may take. None of them limits a body that flows. */
export interface Patience {
  /** To begin its answer, and to take the next bytes of ours. */
  readonly headersMs: number
  /** To begin its answer where it has to go over a whole blob first. */
  readonly finishMs: number
  /** Between two pieces of a body. */
  readonly stallMs: number
}
