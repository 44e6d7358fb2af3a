import { describe, expect, test } from 'vitest'
import { errorMessage, errorText } from '../../src/base/error-text.ts'
import { StoreError } from '../../src/store/store.ts'

function missing(path: string): Error {
  return Object.assign(new Error(`ENOENT: no such file or directory, open '${path}'`), { code: 'ENOENT', path })
}

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

  test.each<[string, unknown, string]>([
    ['names the file', missing('/a/b.json'), '/a/b.json: no such file or directory'],
    ['names the file once', new Error('/a/b.json cannot be read', { cause: missing('/a/b.json') }), '/a/b.json cannot be read: no such file or directory'],
    [
      'keeps what the system says of no file',
      Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' }),
      'ENOSPC: no space left on device, write',
    ],
    ['keeps other messages', new TypeError('it broke'), 'it broke'],
  ])('for people %s', (_what, error, expected) => {
    expect(errorMessage(error)).toBe(expected)
  })

  test('for people does not repeat the path of the text before it', () => {
    expect(errorMessage(missing('/a/b.json'), 'refused: /a/b.json')).toBe('no such file or directory')
  })

  test('a cycle of causes ends the text', () => {
    const error = new Error('a')
    error.cause = error
    expect(errorText(error)).toBe('Error: a')
  })
})
