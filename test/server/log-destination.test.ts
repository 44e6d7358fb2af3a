import { closeSync, openSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import { expect, onTestFinished, test } from 'vitest'
import { LogDestination } from '../../src/server/logs/log-destination.ts'
import { textLine } from '../../src/server/logs/text-line.ts'
import { smallFileSystem } from '../support/parts/small-file-system.ts'
import { until } from '../e2e/process/harness/ops.ts'

function openLog(directory: string): { file: string; destination: LogDestination } {
  const file = join(directory, 'log')
  const fd = openSync(file, 'a', 0o600)
  onTestFinished(() => closeSync(fd))
  return { file, destination: new LogDestination(fd) }
}

function numbered(from: number, to: number): string[] {
  return Array.from({ length: to - from }, (_, index) => `line ${from + index} ${'x'.repeat(100)}\n`)
}

test('log lines arrive in order, those of a flush at once', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-log-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const { file, destination } = openLog(directory)
  for (const line of numbered(0, 1000)) destination.write(line)
  await until(async () => (await readFile(file, 'utf8')) === numbered(0, 1000).join(''))
  destination.write('last\n')
  await until(async () => (await readFile(file, 'utf8')).endsWith('last\n'))
  // Flushes now: a flush during a pending write may write its lines twice.
  destination.flush()
  expect(await readFile(file, 'utf8')).toBe(`${numbered(0, 1000).join('')}last\n`)
})

test('at the end each line is written once, also while a write is running', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-log-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const { file, destination } = openLog(directory)
  for (let round = 0; round < 20; round++) {
    for (const line of numbered(round * 10, round * 10 + 10)) destination.write(line)
    await destination.close()
    expect(await readFile(file, 'utf8')).toBe(numbered(0, round * 10 + 10).join(''))
  }
})

test('on a full disk log lines are kept, up to 4 MiB, and written when there is room; a flush does not wait', async () => {
  const disk = await smallFileSystem(8 * 1024 * 1024)
  const { file, destination } = openLog(disk.directory)
  await disk.fill()
  for (const line of numbered(0, 100)) destination.write(line)
  const startedAt = performance.now()
  destination.flush()
  expect(performance.now() - startedAt).toBeLessThan(3_000)
  for (const line of numbered(100, 60_000)) destination.write(line)
  await disk.makeRoom()
  await until(async () => (await readFile(file, 'utf8')).includes('lines were dropped'))
  const lines = (await readFile(file, 'utf8')).trimEnd().split('\n')
  const kept = lines.slice(0, -1)
  expect(kept.map((line) => `${line}\n`)).toEqual(numbered(0, kept.length))
  expect(kept.length).toBeGreaterThan(30_000)
  expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ lines: 60_000 - kept.length })
})

test('text lines have time, level, message and fields, each in one line that does nothing to a terminal', () => {
  const lines: string[] = []
  const logger = pino({ base: null, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'message' }, { write: (line) => void lines.push(textLine(line)) })
  logger.info({ port: 8080, baseUrl: 'https://a.example/b', endpoints: ['http://a:1', 'b c'] }, 'ready')
  logger.warn({ name: 'two words', forged: 'a\nERROR b="c"', escape: '\u001b[2J\u009b2J\u202e', nothing: null }, 'odd\nmessage')
  logger.error({ 'odd name\n': '' }, 'failed')
  const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) as string
  expect(lines.map((line) => [line.slice(0, 24), line.slice(24)])).toEqual([
    [time, ' INFO  ready port=8080 baseUrl=https://a.example/b endpoints=["http://a:1","b c"]\n'],
    [time, String.raw` WARN  odd\u000amessage name="two words" forged="a\nERROR b=\"c\"" escape="\u001b[2J\u009b2J\u202e" nothing=null` + '\n'],
    [time, String.raw` ERROR failed odd name\u000a=""` + '\n'],
  ])
})
