import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { errorMessage } from '../../base/error-text.ts'
import { algorithmOf, digestOfHex, type Digest } from '../../base/digest.ts'
import { packagesOfLayers, type SkippedFile } from '../layers/packages-of-layers.ts'
import { ContentError, isSystemError, type ContentRetry, type ImagePackage } from '../package.ts'
import { packagesOfSbom, type SbomContents } from '../sbom/sbom.ts'
import { readReport } from '../scanner-reports/report.ts'
import type { FromReadingProcess, ReadingJob, Readings } from './reading-process.ts'

/** The number of packages or vulnerabilities in a message. */
const itemsAtOnce = 500
/** The most characters of all packages together. */
const maxCharacters = 64 * 1024 * 1024

function say(message: FromReadingProcess): void {
  if (process.connected) process.send?.(message)
}

/** The standard input, which holds one blob after the other. */
class Input {
  readonly #pieces = process.stdin.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer> // a stream without encoding
  #left: Buffer = Buffer.alloc(0)

  /** Yields the next `size` bytes. */
  async *take(size: number): AsyncGenerator<Buffer, void, undefined> {
    for (let wanted = size; wanted > 0;) {
      if (this.#left.length === 0) {
        const next = await this.#pieces.next()
        if (next.done === true) throw new ContentError('UNREADABLE', 'the input ended early')
        this.#left = next.value
      }
      const piece = this.#left.subarray(0, wanted)
      this.#left = this.#left.subarray(piece.length)
      wanted -= piece.length
      yield piece
    }
  }
}

/** Yields the bytes, and throws ContentError WRONG_DIGEST at their end. */
async function* checked(
  bytes: AsyncIterable<Buffer>,
  { digest, what, retry = 'never' }: { readonly digest: Digest; readonly what: string; readonly retry?: ContentRetry },
): AsyncGenerator<Buffer, void, undefined> {
  const algorithm = algorithmOf(digest)
  const hash = createHash(algorithm)
  for await (const piece of bytes) {
    hash.update(piece)
    yield piece
  }
  if (digestOfHex(algorithm, hash.digest('hex')) !== digest)
    throw new ContentError('WRONG_DIGEST', `the bytes of ${what} ${digest} have another digest`, { retry })
}

/** Returns the packages. Throws ContentError TOO_LARGE if their texts are. */
function bounded(packages: readonly ImagePackage[]): readonly ImagePackage[] {
  let characters = 0
  for (const { purl, name, version, origin, licenses, locations } of packages) {
    for (const text of [purl, name, version, origin, ...licenses, ...locations]) characters += text.length
    if (characters > maxCharacters) throw new ContentError('TOO_LARGE', `the texts of the packages have more than ${maxCharacters} characters`)
  }
  return packages
}

/** Returns what an SBOM leaves open, with an empty path. Throws ContentError UNREADABLE if it names packages, and none of them by a package URL: the layers may say more. */
function skippedOfSbom(packages: number, { unnamed, exempt }: Pick<SbomContents, 'unnamed' | 'exempt'>): readonly SkippedFile[] {
  if (packages === 0 && unnamed + exempt > 0) throw new ContentError('UNREADABLE', `none of its ${unnamed + exempt} packages has a valid package URL`)
  if (unnamed === 0) return []
  return [{ path: '', problem: 'UNREADABLE', message: `packages of the SBOM without a valid package URL: ${unnamed}` }]
}

async function wholeOf(bytes: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of bytes) pieces.push(piece)
  return Buffer.concat(pieces)
}

async function read(job: ReadingJob, input: Input, signal: AbortSignal): Promise<Readings[keyof Readings]> {
  if (job.kind === 'report') {
    const { digest, size, ...about } = job
    const { vulnerabilities, ...facts } = readReport(await wholeOf(checked(input.take(size), { digest, what: 'document', retry: 'daily' })), about)
    return { items: vulnerabilities, facts }
  }
  if (job.kind === 'sbom') {
    const { distribution, described, packages, ...rest } = packagesOfSbom(await wholeOf(input.take(job.size)), { digests: job.digests })
    const skipped = skippedOfSbom(packages.length, rest)
    // So an SBOM about nothing differs from one that earlier readers read.
    return { items: bounded(packages), facts: { distribution, described: described ?? { name: '', version: '', purl: '' }, skipped } }
  }
  const layers = job.layers.map(({ digest, size }) => checked(input.take(size), { digest, what: 'layer' }))
  const { distribution, packages, skipped } = await packagesOfLayers(layers, signal)
  return { items: bounded(packages), facts: { distribution, described: undefined, skipped } }
}

async function run(job: ReadingJob, signal: AbortSignal): Promise<void> {
  try {
    const { items, facts } = await read(job, new Input(), signal)
    for (let at = 0; at < items.length; at += itemsAtOnce) say({ kind: 'items', items: items.slice(at, at + itemsAtOnce) })
    say({ kind: 'read', facts })
  } catch (error) {
    const other = { problem: 'UNREADABLE', retry: isSystemError(error) ? 'few' : 'never', isRecognised: false } as const
    const { problem, retry, isRecognised } = error instanceof ContentError ? error : other
    say({ kind: 'failed', problem, message: errorMessage(error).slice(0, 1_000), retry, isRecognised })
  }
}

const alone = new AbortController()
process.on('message', (job: ReadingJob) => void run(job, alone.signal))
process.on('disconnect', () => {
  // The other process is gone, so nothing else removes the files.
  alone.abort(new Error('the process that started the reading is gone'))
  process.stdin.destroy()
  rmSync(tmpdir(), { recursive: true, force: true })
})
