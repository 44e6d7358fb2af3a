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
  ['other bytes than the digest names', new UpstreamError('digest_mismatch', 'x'), 400, 'DIGEST_INVALID', undefined],
  ['an upstream that changed what it keeps', new UpstreamError('corrupt', 'x'), 500, 'UNKNOWN', undefined],
  ['an unknown upload', new UpstreamError('upload_unknown', 'x'), 404, 'BLOB_UPLOAD_UNKNOWN', undefined],
  ['a chunk out of order', new UpstreamError('range_invalid', 'x'), 416, 'BLOB_UPLOAD_INVALID', undefined],
  ['an upstream that refuses', new UpstreamError('refused', 'x'), 500, 'UNKNOWN', undefined],
  ['a store that does not answer', new StoreError('unavailable', 'x'), 503, 'UNAVAILABLE', '1'],
  ['a full store', new StoreError('exhausted', 'x'), 503, 'UNAVAILABLE', '30'],
  ['a record that is too large', new StoreError('too_large', 'x'), 400, 'UNSUPPORTED', undefined],
  ['an outcome that is not known', domain(2), 503, 'UNAVAILABLE', undefined],
  ['a deadline', domain(4), 504, 'UNAVAILABLE', undefined],
  ['what is not there', domain(5), 404, 'NAME_UNKNOWN', undefined],
  ['a right that is missing', domain(7), 403, 'DENIED', undefined],
  ['a quota', domain(8), 429, 'TOOMANYREQUESTS', undefined],
  ['a state that forbids it', domain(9), 409, 'DENIED', undefined],
  ['parts that are not held', domain(9, { reason: 'MANIFEST_BLOB_UNKNOWN' }), 404, 'MANIFEST_BLOB_UNKNOWN', undefined],
  ['a name that can not be made', domain(3, { reason: 'NAME_INVALID' }), 400, 'NAME_INVALID', undefined],
  ['changes at once', domain(10, { details: { retryAfterMs: 100 } }), 503, 'UNAVAILABLE', '1'],
  ['an anonymous caller', domain(16), 401, 'UNAUTHORIZED', undefined],
  ['an error of the program', new TypeError('a secret'), 500, 'UNKNOWN', undefined],
  ['something that is no error', 'a secret', 500, 'UNKNOWN', undefined],
])('%s', (_, error, status, code, retryAfter) => {
  const answer = toRegistryError(error)
  expect([answer.status, answer.code, answer.headers['Retry-After']]).toEqual([status, code, retryAfter])
  expect(errorBody(answer)).not.toContain('secret')
})

test('the error names the missing item', () => {
  const subject = `sha256:${'a'.repeat(64)}`
  const error = domain(9, { reason: 'MANIFEST_BLOB_UNKNOWN', details: { precondition: [{ type: 'MANIFEST_BLOB_UNKNOWN', subject, description: 'x' }] } })
  expect(JSON.parse(errorBody(toRegistryError(error)))).toEqual({
    errors: [{ code: 'MANIFEST_BLOB_UNKNOWN', message: 'what happened', detail: { digest: subject } }],
  })
})

test('an error of our own stays as it is', () => {
  const error = new RegistryError('DENIED', 'no')
  expect(toRegistryError(error)).toBe(error)
})
