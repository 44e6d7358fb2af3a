/** Questions to the process under test. */
export type Question =
  | { readonly ask: 'memory' }
  | { readonly ask: 'keys' }
  | { readonly ask: 'sign-in-token'; readonly subject: string }
  | { readonly ask: 'operator-token' }
  | { readonly ask: 'stop' }

/** The number of entries to trim or sweep, and the age of the oldest in hours of the server's clock. */
export interface KeysAnswer {
  readonly outbox: number
  readonly oldestOutboxHours: number
  readonly idempotency: number
  readonly oldestIdempotencyHours: number
  readonly cascades: number
  readonly records: number
}

/** Sent at the server's start. */
export interface Started {
  readonly apiPort: number
  readonly opsPort: number
  readonly baseUrl: string
}
