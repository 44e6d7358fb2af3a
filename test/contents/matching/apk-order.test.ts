import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { apkOrder } from '../../../src/base/versions/apk-version.ts'

/**
 * The answers of apk-tools to `apk version -t`. The first line names the version of apk-tools, the second the checksum of
 * the pairs. Then each pair has one character: `<`, `=` or `>`, or `!` if one of the two is no valid version.
 *
 * To record them again, name a program `apk`, for example in a container of Alpine. It runs once for each pair:
 *
 *     RECORD_APK=/sbin/apk npx vitest run --project main test/contents/matching/apk-order.test.ts
 */
const answersFile = join(import.meta.dirname, 'apk-answers.txt')
const pairs = 10_000

type Pair = readonly [one: string, other: string]

/** Returns a function that takes one of several texts by a fixed sequence of pseudo-random numbers (xorshift). */
function picking(seed: number): (texts: readonly string[]) => string {
  let state = seed
  return (texts) => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return texts[(state >>> 0) % texts.length] ?? ''
  }
}

/** Returns the pairs. Most are near versions of each other, and one of ten is of pieces in any order. */
function pairsOf(count: number): Pair[] {
  const pick = picking(20_261_128)
  const number = (): string => pick(['0', '1', '2', '9', '10', '01', '00', '09', '010', '100', '2026'])
  const suffix = (): string =>
    pick(['', `_${pick(['alpha', 'beta', 'pre', 'rc', 'cvs', 'svn', 'git', 'hg', 'p'])}${pick(['', '', '1', '2', '10', '01', '20191002222144'])}`])
  const parts: readonly (() => string)[] = [
    () => pick(['1', '1.0', '1.0.0', number()]),
    () => pick(['', `.${number()}`, `.${number()}.${number()}`]),
    () => pick(['', '', '', 'a', 'b', 'z']),
    suffix,
    suffix,
    () => pick(['', '', '', '', '', '', '', '', '_foo', '_']),
    () => pick(['', '', '', '~abc', '~0', '~abcdef', '~12']),
    () => pick(['', '-r0', '-r1', '-r10', '-r01']),
  ]
  const near = (): Pair => {
    const one = parts.map((part) => part())
    const other = parts.map((part, at) => (pick(['same', 'same', 'same', 'new']) === 'new' ? part() : (one[at] ?? '')))
    return [one.join(''), other.join('')]
  }
  const piece = (): string => pick(['1', '0', '.', '_', '-r', '~', 'a', 'rc', '-', 'p', '10', 'A'])
  const pieces = (): string => Array.from({ length: Number(pick(['1', '2', '3', '4', '5', '6'])) }, piece).join('')
  return Array.from({ length: count }, (_, at): Pair => (at % 10 === 0 ? [pieces(), pieces()] : near()))
}

const inputOf = (all: readonly Pair[]): string => all.map((pair) => `${pair.join(' ')}\n`).join('')
const checksumOf = (all: readonly Pair[]): string => digestOf(Buffer.from(inputOf(all)))

/** Returns what a program prints for a text. Throws if it fails. */
function printed(program: string, args: readonly string[], input = ''): string {
  return execFileSync(program, args, { input, encoding: 'utf8' }).trim()
}

/** Writes the answers of a program `apk` to the file. It exits with an error for a version that is not valid. */
function record(apk: string, all: readonly Pair[]): void {
  const loop = 'while read -r one other; do "$0" version -t "$one" "$other" || echo "!"; done'
  const answers = printed('sh', ['-c', loop, apk], inputOf(all)).replaceAll('\n', '')
  writeFileSync(answersFile, `${[printed(apk, ['--version']), checksumOf(all), ...(answers.match(/.{1,100}/g) ?? [])].join('\n')}\n`)
}

function ourAnswer([one, other]: Pair): string {
  if (apkOrder.read(one) === undefined || apkOrder.read(other) === undefined) return '!'
  return ['<', '=', '>'][Math.sign(apkOrder.compare(one, other)) + 1] ?? ''
}

// docs/images.md#compared-with-osv-scanner
test('versions are valid and compared as by apk-tools', { timeout: 600_000 }, () => {
  const all = pairsOf(pairs)
  if (process.env['RECORD_APK'] !== undefined) record(process.env['RECORD_APK'], all)
  const [program, checksum, ...lines] = readFileSync(answersFile, 'utf8').trimEnd().split('\n')
  expect(program).toMatch(/^apk-tools 3\./)
  expect(checksum, 'these are not the pairs that apk-tools was asked: record its answers again, as the test says').toBe(checksumOf(all))
  const answers = lines.join('')
  expect(answers).toHaveLength(pairs)
  for (const answer of '<=>!') expect(answers.split(answer).length, `pairs with the answer ${answer}`).toBeGreaterThan(pairs / 50)
  const wrong = all.flatMap((pair, at) => (ourAnswer(pair) === answers[at] ? [] : [`${pair.join(' and ')}: ${ourAnswer(pair)} instead of ${answers[at]}`]))
  expect(wrong).toEqual([])
})
