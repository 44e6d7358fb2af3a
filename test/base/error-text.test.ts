import { describe, expect, test } from 'vitest'
import { errorText } from '../../src/base/error-text.ts'
import { StoreError } from '../../src/store/store.ts'

describe('errorText', () => {
  test.each<[string, unknown, string]>([
    ['an error', new Error('it broke'), 'Error: it broke'],
    ['an error with causes', new Error('a', { cause: new StoreError('unavailable', 'b', new TypeError('c')) }), 'Error: a: StoreError: b: TypeError: c'],
    ['a cause that the message repeats', new Error('can not read: no such file', { cause: new Error('no such file') }), 'Error: can not read: no such file'],
    [
      'errors together',
      new Error('no connection', { cause: new AggregateError([new Error('one'), new Error('two')]) }),
      'Error: no connection: AggregateError: Error: one: Error: two',
    ],
    ['a text', 'stopped', 'stopped'],
    ['nothing', undefined, 'undefined'],
  ])('%s', (_what, error, expected) => {
    expect(errorText(error)).toBe(expected)
  })

  test('a ring of causes ends', () => {
    const error = new Error('a')
    error.cause = error
    expect(errorText(error)).toBe('Error: a')
  })
})
