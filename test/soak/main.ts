/**
 * npm run soak [-- --minutes 60 --store sqlite|etcd --rate 60 --speed 600 --out <directory>]: creates, changes, deletes, lists and signs in for an hour.
 * One server must keep flat memory, flat file descriptors and expired keys under control. Exits with code 1 if it does not.
 */
import { randomBytes } from 'node:crypto'
import { appendFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { startEtcd, type EtcdCluster } from '../support/parts/etcd.ts'
import { Churner } from './churn.ts'
import { growthOf, type Bound } from './growth.ts'
import type { MemoryInUse } from '../support/parts/memory-in-use.ts'
import type { KeysAnswer } from './protocol.ts'
import { Subject } from './subject.ts'

const mebibyte = 1024 * 1024
const sampleEveryMs = 10_000
const workers = 2

/** The limits of growth: a leak of 100 bytes per operation would be 20 MiB an hour. The rest of `rss` is memory that allocators keep after peaks. */
const bounds = {
  heap: { perHour: 16 * mebibyte, noise: 4 * mebibyte },
  external: { perHour: 4 * mebibyte, noise: 2 * mebibyte },
  rss: { perHour: 24 * mebibyte, noise: 32 * mebibyte },
  descriptors: { perHour: 1, noise: 3 },
} as const satisfies Record<string, Bound>

type Measure = keyof typeof bounds
const measures: readonly Measure[] = ['heap', 'external', 'rss', 'descriptors']

/**
 * The oldest entries that expiry may leave, in hours by the server's clock.
 * The sum of their life, an hour for idempotency's buckets, and the time between two rounds.
 */
const oldestHours = { outbox: 72, idempotency: 26 }
const expirySlackHours = 1

type Sample = Readonly<Record<Measure, number>> & { readonly atMs: number; readonly operations: number }

interface Options {
  readonly minutes: number
  readonly store: 'sqlite' | 'etcd'
  readonly rate: number
  readonly speed: number
  readonly out: string
}

const usage = `Usage: npm run soak -- [options]

Keeps a server busy and watches its memory and open files; says "flat", or what grew, and exits with 0 or 1.

  --minutes <number>   how long, 60 by default (TAPROOT_SOAK_MINUTES)
  --store <name>       sqlite (default) or etcd (TAPROOT_SOAK_STORE)
  --rate <number>      operations a second, 60 by default
  --speed <number>     how much faster the server's clock runs, so that trimming has work; 600 by default
  --out <folder>       where samples and result go; one below the temporary folder by default
  --help               print this
`

/** Undefined if only help is requested. Throws on invalid options. */
function readOptions(): Options | undefined {
  const { values } = parseArgs({
    options: {
      help: { type: 'boolean', default: false },
      minutes: { type: 'string', default: process.env['TAPROOT_SOAK_MINUTES'] ?? '60' },
      store: { type: 'string', default: process.env['TAPROOT_SOAK_STORE'] ?? 'sqlite' },
      rate: { type: 'string', default: '60' },
      speed: { type: 'string', default: '600' },
      out: { type: 'string', default: join(tmpdir(), `taproot-soak-${new Date().toISOString().replace(/[:.]/g, '-')}`) },
    },
  })
  if (values.help) return undefined
  const { store, out } = values
  if (store !== 'sqlite' && store !== 'etcd') throw new Error(`--store is sqlite or etcd: ${store}`)
  const [minutes, rate, speed] = [Number(values.minutes), Number(values.rate), Number(values.speed)]
  if (!(minutes > 0 && rate > 0 && speed >= 1)) throw new Error('--minutes, --rate and --speed are numbers above 0')
  return { minutes, store, rate, speed, out }
}

async function sample(subject: Subject, churners: readonly Churner[]): Promise<Sample> {
  const memory = await subject.ask<MemoryInUse>({ ask: 'memory' })
  const resources = await subject.resources()
  return { atMs: Date.now(), ...memory, ...resources, operations: churners.reduce((sum, churner) => sum + churner.operations, 0) }
}

function line(startMs: number, { atMs, operations, heap, external, rss, descriptors }: Sample, keys: KeysAnswer): string {
  const megabytes = (value: number): string => (value / mebibyte).toFixed(1)
  return [
    `${Math.round((atMs - startMs) / 60_000)} min`.padStart(7),
    `${operations} operations`,
    `heap ${megabytes(heap)} + ${megabytes(external)}`,
    `rss ${megabytes(rss)} MiB`,
    `${descriptors} descriptors`,
    `outbox ${keys.outbox} (${keys.oldestOutboxHours.toFixed(0)} h)`,
    `idempotency ${keys.idempotency} (${keys.oldestIdempotencyHours.toFixed(0)} h)`,
    `${keys.cascades} sweeps, ${keys.records} records`,
  ].join('  ')
}

/** The errors found, one line each. */
function errorsOf(samples: readonly Sample[], keys: KeysAnswer, speed: number): string[] {
  const errors: string[] = []
  for (const measure of measures) {
    const growth = growthOf(
      samples.map((each) => ({ atMs: each.atMs, value: each[measure] })),
      bounds[measure],
    )
    const [unit, factor] = measure === 'descriptors' ? ['', 1] : [' MiB', mebibyte]
    const shown = (value: number): string => `${(value / factor).toFixed(2)}${unit}`
    process.stdout.write(`${measure}: ${shown(growth.slopePerHour)} per hour; grown ${shown(growth.grown)} of at most ${shown(growth.allowed)}\n`)
    if (!growth.within) errors.push(`${measure} grows`)
  }
  // The time between two rounds includes the clock's advance between two polls, and the round's own time.
  const slack = expirySlackHours + (30 * speed) / 3600
  if (keys.oldestOutboxHours > oldestHours.outbox + slack) errors.push(`an event is ${keys.oldestOutboxHours.toFixed(1)} hours old`)
  if (keys.oldestIdempotencyHours > oldestHours.idempotency + slack) errors.push(`an idempotency key is ${keys.oldestIdempotencyHours.toFixed(1)} hours old`)
  if (keys.cascades > 0) errors.push(`${keys.cascades} sweep marks are left`)
  return errors
}

/** Churns and samples for the given time; rejects at the first wrong answer. */
async function churn(subject: Subject, { minutes, rate, out }: Options): Promise<Sample[]> {
  const stop = new AbortController()
  const churners = Array.from({ length: workers }, (_, index) => new Churner(subject, `churn-${index}`))
  await Promise.all(churners.map((churner) => churner.setUp()))
  const running = Promise.all(churners.map((churner) => churner.run((1000 * workers) / rate, stop.signal)))
  const samples: Sample[] = []
  const file = join(out, 'samples.csv')
  await writeFile(file, 'at,operations,heap,external,rss,descriptors\n')
  const startMs = Date.now()
  const sampling = async (): Promise<void> => {
    for (let next = startMs + sampleEveryMs; Date.now() < startMs + minutes * 60_000; next += sampleEveryMs) {
      await delay(Math.max(0, next - Date.now()))
      const taken = await sample(subject, churners)
      samples.push(taken)
      await appendFile(file, `${new Date(taken.atMs).toISOString()},${taken.operations},${taken.heap},${taken.external},${taken.rss},${taken.descriptors}\n`)
      if (samples.length % 6 === 0) process.stdout.write(`${line(startMs, taken, await subject.ask<KeysAnswer>({ ask: 'keys' }))}\n`)
    }
    stop.abort()
  }
  await Promise.all([running, sampling()])
  return samples
}

/** The keys after sweeping has ended, or after 10 s. */
async function settledKeys(subject: Subject): Promise<KeysAnswer> {
  for (let left = 50; ; left -= 1) {
    const keys = await subject.ask<KeysAnswer>({ ask: 'keys' })
    if (keys.cascades === 0 || left === 0) return keys
    await delay(200)
  }
}

async function settingsOf({ store }: Options, directory: string, etcd: EtcdCluster | undefined): Promise<Record<string, string>> {
  const keyFile = join(directory, 'encryption.key')
  await writeFile(keyFile, randomBytes(32).toString('hex'))
  const env = { TAPROOT_DATA_DIR: directory, TAPROOT_ENCRYPTION_KEY_FILE: keyFile, TAPROOT_STORE_KIND: store }
  return etcd === undefined ? env : { ...env, TAPROOT_STORE_ETCD_ENDPOINTS: etcd.endpoints.join(',') }
}

async function main(options: Options): Promise<void> {
  const { minutes, store, rate, speed, out } = options
  await mkdir(out, { recursive: true })
  const directory = await mkdtemp(join(tmpdir(), 'taproot-soak-data-'))
  const etcd = store === 'etcd' ? await startEtcd({ flags: ['--auto-compaction-mode=revision', '--auto-compaction-retention=1000'] }) : undefined
  let subject: Subject | undefined
  try {
    subject = await Subject.start(speed, await settingsOf(options, directory, etcd))
    process.stdout.write(`${minutes} minutes on ${store}, ${rate} operations a second, the server's clock ${speed} times as fast; samples in ${out}\n`)
    const samples = await churn(subject, options)
    const keys = await settledKeys(subject)
    const errors = errorsOf(samples, keys, speed)
    await writeFile(join(out, 'result.json'), `${JSON.stringify({ options, samples: samples.length, last: samples.at(-1), keys, faults: errors }, null, 2)}\n`)
    process.stdout.write(errors.length === 0 ? 'flat\n' : `NOT FLAT: ${errors.join('; ')}\n`)
    process.exitCode = errors.length === 0 ? 0 : 1
  } finally {
    await subject?.stop()
    await etcd?.stop()
    await rm(directory, { recursive: true, force: true })
  }
}

let options: Options | undefined
try {
  options = readOptions()
  if (options === undefined) process.stdout.write(usage)
} catch (error) {
  process.stderr.write(`soak: ${error instanceof Error ? error.message : String(error)}; npm run soak -- --help lists the options\n`)
  process.exitCode = 2
}
if (options !== undefined) await main(options)
