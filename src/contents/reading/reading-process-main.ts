import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { errorMessage } from '../../base/error-text.ts'
import { algorithmOf, digestOfHex, type Digest } from '../../base/digest.ts'
import { packagesOfLayers } from '../layers/packages-of-layers.ts'
import { ContentError, isSystemError, type ImagePackage } from '../package.ts'
import { packagesOfSbom } from '../sbom/sbom.ts'
import type { FromReadingProcess, ReadingJob, ReadPackages } from './reading-process.ts'

/** The number of packages in a message. */
const packagesAtOnce = 500
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
async function* checked(bytes: AsyncIterable<Buffer>, digest: Digest): AsyncGenerator<Buffer, void, undefined> {
  const algorithm = algorithmOf(digest)
  const hash = createHash(algorithm)
  for await (const piece of bytes) {
    hash.update(piece)
    yield piece
  }
  if (digestOfHex(algorithm, hash.digest('hex')) !== digest) throw new ContentError('WRONG_DIGEST', `the bytes of layer ${digest} have another digest`)
}

async function read(job: ReadingJob, input: Input, signal: AbortSignal): Promise<ReadPackages> {
  if (job.kind === 'layers') {
    const layers = job.layers.map(({ digest, size }) => checked(input.take(size), digest))
    return { described: undefined, ...(await packagesOfLayers(layers, signal)) }
  }
  const pieces: Buffer[] = []
  for await (const piece of input.take(job.size)) pieces.push(piece)
  const { distribution, described, packages } = packagesOfSbom(Buffer.concat(pieces), { digests: job.digests })
  return { distribution, described, packages, skipped: [] }
}

function assertSmall(packages: readonly ImagePackage[]): void {
  let characters = 0
  for (const { purl, name, version, origin, licenses, locations } of packages) {
    for (const text of [purl, name, version, origin, ...licenses, ...locations]) characters += text.length
    if (characters > maxCharacters) throw new ContentError('TOO_LARGE', `the texts of the packages have more than ${maxCharacters} characters`)
  }
}

async function run(job: ReadingJob, signal: AbortSignal): Promise<void> {
  try {
    const { packages, ...facts } = await read(job, new Input(), signal)
    assertSmall(packages)
    for (let at = 0; at < packages.length; at += packagesAtOnce) say({ kind: 'packages', packages: packages.slice(at, at + packagesAtOnce) })
    say({ kind: 'read', facts })
  } catch (error) {
    const other = { problem: 'UNREADABLE', retry: isSystemError(error) ? 'few' : 'never' } as const
    const { problem, retry } = error instanceof ContentError ? error : other
    say({ kind: 'failed', problem, message: errorMessage(error).slice(0, 1_000), retry })
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
