import { describe, expect, test } from 'vitest'
import { errorText } from '../../src/base/error-text.ts'
import { StoreError } from '../../src/store/store.ts'

describe('errorText', () => {
  test.each<[string, unknown, string]>([
    ['shows the message of an error', new Error('it broke'), 'Error: it broke'],
    [
      'shows an error with its causes',
      new Error('a', { cause: new StoreError('unavailable', 'b', new TypeError('c')) }),
      'Error: a: StoreError: b: TypeError: c',
    ],
    [
      'shows a cause once if the message repeats it',
      new Error('can not read: no such file', { cause: new Error('no such file') }),
      'Error: can not read: no such file',
    ],
    [
      'shows all errors of an AggregateError',
      new Error('no connection', { cause: new AggregateError([new Error('one'), new Error('two')]) }),
      'Error: no connection: AggregateError: Error: one: Error: two',
    ],
    ['shows a thrown string', 'stopped', 'stopped'],
    ['shows a thrown undefined', undefined, 'undefined'],
  ])('%s', (_what, error, expected) => {
    expect(errorText(error)).toBe(expected)
  })

  test('a cycle of causes ends the text', () => {
    const error = new Error('a')
    error.cause = error
    expect(errorText(error)).toBe('Error: a')
  })
})
