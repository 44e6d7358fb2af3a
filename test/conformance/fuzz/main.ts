/**
 * npm run fuzz [-- --seed 1 --requests 20000 --only rest|grpc --store sqlite|etcd --from 1]: starts a server and sends it malformed requests.
 * It checks each answer, and that refused requests change nothing. Exits with code 1 if a check fails.
 */
import { parseArgs } from 'node:util'
import { breachLines } from './report.ts'
import { Run, type RunOptions } from './run.ts'
import { startTarget } from './target.ts'

const boundMs = 10_000

const usage = `Usage: npm run fuzz -- [options]

Sends a server malformed and odd requests over REST and gRPC; prints what was sent and answered, and every breach. Exits with 0 or 1.

  --seed <number>      what the requests follow from; a random one by default, which is printed
  --requests <number>  how many, 20000 by default
  --from <number>      the number of the first: with --requests 1, one request again; 1 by default
  --only <transport>   rest or grpc; both by default
  --store <name>       sqlite (default) or etcd
  --help               print this
`

interface Options extends RunOptions {
  readonly store: 'sqlite' | 'etcd'
}

/** Parses a whole number above 0. Throws for other text. */
function count(name: string, text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new Error(`--${name} is a whole number above 0: ${text}`)
  return Number(text)
}

/** Returns undefined if only help is requested. Throws for a wrong option. */
function readOptions(): Options | undefined {
  const { values } = parseArgs({
    options: {
      help: { type: 'boolean', default: false },
      seed: { type: 'string', default: String(1 + Math.floor(Math.random() * 999_999_998)) },
      requests: { type: 'string', default: '20000' },
      from: { type: 'string', default: '1' },
      only: { type: 'string' },
      store: { type: 'string', default: 'sqlite' },
    },
  })
  if (values.help) return undefined
  const { store, only } = values
  if (store !== 'sqlite' && store !== 'etcd') throw new Error(`--store is sqlite or etcd: ${store}`)
  if (only !== undefined && only !== 'rest' && only !== 'grpc') throw new Error(`--only is rest or grpc: ${only}`)
  const [seed, requests, from] = [count('seed', values.seed), count('requests', values.requests), count('from', values.from)]
  return { seed, requests, from, only, store, boundMs }
}

async function main(options: Options): Promise<void> {
  const { seed, requests, only, store } = options
  process.stdout.write(`${requests} requests on ${store}, seed ${seed}\n`)
  const target = await startTarget(store)
  try {
    const startedAt = performance.now()
    const progress = (done: number): void => void process.stdout.write(`  ${done} of ${requests}, ${Math.round((performance.now() - startedAt) / 1000)} s\n`)
    const { tally, breaches, sent, accepted, memory } = await new Run(target, { ...options, progress }).all()
    process.stdout.write(
      `${tally.lines().join('\n')}\n\n${sent} requests, ${accepted} of them accepted; heap in MiB: ${memory.map((bytes) => Math.round(bytes / 2 ** 20)).join(' ')}\n`,
    )
    const again = (request: number): string =>
      `npm run fuzz -- --seed ${seed}${only === undefined ? '' : ` --only ${only}`} --store ${store}${request === 0 ? ` --requests ${requests}` : ` --from ${request} --requests 1`}`
    for (const breach of breaches) process.stdout.write(breachLines(breach, again(breach.request)))
    process.stdout.write(breaches.length === 0 ? 'no breach\n' : `${breaches.length} BREACHES\n`)
    process.exitCode = breaches.length === 0 ? 0 : 1
  } finally {
    await target.stop()
  }
}

let options: Options | undefined
try {
  options = readOptions()
  if (options === undefined) process.stdout.write(usage)
} catch (error) {
  process.stderr.write(`fuzz: ${error instanceof Error ? error.message : String(error)}; npm run fuzz -- --help lists the options\n`)
  process.exitCode = 2
}
if (options !== undefined) await main(options)
