import type { Corpus } from '../protocol.ts'

/** A corpus of records that do not exist: requests can be created from it, but no server accepts them. */
export const sampleCorpus: Corpus = {
  examples: [],
  tokens: ['token'],
  outsider: 'token',
  uids: ['a'.repeat(40)],
  registry: { path: 'a/b', host: 'localhost:1', authorizations: ['Bearer x'] },
  login: {
    baseUrl: 'http://localhost:1',
    group: 'a'.repeat(40),
    provider: `${'a'.repeat(40)}/${'b'.repeat(16)}`,
    headlessCodes: ['x'],
    userCodes: ['BCDF-GHJK'],
    deviceCodes: ['a'.repeat(64)],
    refreshTokens: ['x'],
    confirmations: [{ fields: [['request', 'x']], cookie: 'a=b' }],
    callbacks: [{ fields: [['state', 'x']], cookie: 'a=b' }],
  },
  scim: { provider: `${'a'.repeat(40)}/${'b'.repeat(16)}`, token: 'x', ids: ['b'.repeat(16)] },
}
