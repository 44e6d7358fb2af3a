import { expect, test } from 'vitest'
import { DomainError, type ErrorOptions } from '../../../src/base/errors.ts'
import { errorBody, toRegistryError } from '../../../src/registry/oci/oci-errors.ts'
import { RegistryError } from '../../../src/registry/registry-error.ts'
import { UpstreamError } from '../../../src/registry/upstream/upstream.ts'
import { StoreError } from '../../../src/store/store.ts'

function domain(code: DomainError['code'], options: ErrorOptions = {}): DomainError {
  return new DomainError(code, 'what happened', options)
}

test.each<[string, unknown, number, string, string | undefined]>([
  ['an upstream that does not answer', new UpstreamError('unavailable', 'x'), 503, 'UNAVAILABLE', '5'],
  ['a full upstream', new UpstreamError('exhausted', 'x'), 503, 'UNAVAILABLE', '30'],
  ['other bytes than those of the digest', new UpstreamError('digest_mismatch', 'x'), 400, 'DIGEST_INVALID', undefined],
  ['an upstream with changed content', new UpstreamError('corrupt', 'x'), 500, 'UNKNOWN', undefined],
  ['an unknown upload', new UpstreamError('upload_unknown', 'x'), 404, 'BLOB_UPLOAD_UNKNOWN', undefined],
  ['a chunk out of order', new UpstreamError('range_invalid', 'x'), 416, 'BLOB_UPLOAD_INVALID', undefined],
  ['an upstream that refuses', new UpstreamError('refused', 'x'), 500, 'UNKNOWN', undefined],
  ['a store that does not answer', new StoreError('unavailable', 'x'), 503, 'UNAVAILABLE', '1'],
  ['a full store', new StoreError('exhausted', 'x'), 503, 'UNAVAILABLE', '30'],
  ['a record that is too large', new StoreError('too_large', 'x'), 400, 'UNSUPPORTED', undefined],
  ['an unknown outcome', domain(2), 503, 'UNAVAILABLE', undefined],
  ['a passed deadline', domain(4), 504, 'UNAVAILABLE', undefined],
  ['a missing record', domain(5), 404, 'NAME_UNKNOWN', undefined],
  ['a missing right', domain(7), 403, 'DENIED', undefined],
  ['a reached quota', domain(8), 429, 'TOOMANYREQUESTS', undefined],
  ['a state that forbids the change', domain(9), 409, 'DENIED', undefined],
  ['missing parts', domain(9, { reason: 'MANIFEST_BLOB_UNKNOWN' }), 404, 'MANIFEST_BLOB_UNKNOWN', undefined],
  ['a name that can not be created', domain(3, { reason: 'NAME_INVALID' }), 400, 'NAME_INVALID', undefined],
  ['concurrent changes', domain(10, { details: { retryAfterMs: 100 } }), 503, 'UNAVAILABLE', '1'],
  ['an anonymous caller', domain(16), 401, 'UNAUTHORIZED', undefined],
  ['an internal error', new TypeError('a secret'), 500, 'UNKNOWN', undefined],
  ['a thrown value that is not an error', 'a secret', 500, 'UNKNOWN', undefined],
])('the error format for %s', (_, error, status, code, retryAfter) => {
  const answer = toRegistryError(error)
  expect([answer.status, answer.code, answer.headers['Retry-After']]).toEqual([status, code, retryAfter])
  expect(errorBody(answer)).not.toContain('secret')
})

test('an error names the missing item', () => {
  const subject = `sha256:${'a'.repeat(64)}`
  const error = domain(9, { reason: 'MANIFEST_BLOB_UNKNOWN', details: { precondition: [{ type: 'MANIFEST_BLOB_UNKNOWN', subject, description: 'x' }] } })
  expect(JSON.parse(errorBody(toRegistryError(error)))).toEqual({
    errors: [{ code: 'MANIFEST_BLOB_UNKNOWN', message: 'what happened', detail: { digest: subject } }],
  })
})

test('an error of the registry host stays unchanged', () => {
  const error = new RegistryError('DENIED', 'no')
  expect(toRegistryError(error)).toBe(error)
})
