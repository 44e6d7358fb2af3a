/** What the churn asks of the process under test. */
export type Question =
  | { readonly ask: 'memory' }
  | { readonly ask: 'keys' }
  | { readonly ask: 'sign-in-token'; readonly subject: string }
  | { readonly ask: 'operator-token' }
  | { readonly ask: 'stop' }

/** How many entries the store has that are to be trimmed or swept, and how old the oldest is by the server's clock, in hours. */
export interface KeysAnswer {
  readonly outbox: number
  readonly oldestOutboxHours: number
  readonly idempotency: number
  readonly oldestIdempotencyHours: number
  readonly cascades: number
  readonly records: number
}

/** Sent once the server serves. */
export interface Started {
  readonly apiPort: number
  readonly opsPort: number
  readonly baseUrl: string
}
