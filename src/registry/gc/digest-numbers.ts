import { algorithmOf, digestOfHex, hexOf, isDigest, type DigestAlgorithm } from '../../base/digest.ts'

/** First character of a digest's compact form, by algorithm. */
const marks = { sha256: '1', sha512: '2' } as const satisfies Record<DigestAlgorithm, string>
/** First character of the compact form of a text that is not a digest. */
const otherMark = '0'

function rawOf(digest: string): string {
  if (!isDigest(digest)) return otherMark + digest
  return marks[algorithmOf(digest)] + Buffer.from(hexOf(digest), 'hex').toString('latin1')
}

function textOf(raw: string): string {
  const algorithm = (Object.keys(marks) as DigestAlgorithm[]).find((one) => marks[one] === raw[0]) // a cast: `marks` has no other keys
  return algorithm === undefined ? raw.slice(1) : digestOfHex(algorithm, Buffer.from(raw.slice(1), 'latin1').toString('hex'))
}

/** Assigns numbers to digests, from 0 on. Each digest is in memory once, in its compact form, even if many manifests name it. */
export class DigestNumbers {
  readonly #numbers = new Map<string, number>()
  readonly #raw: string[] = []

  /** Returns the number of the digest. Assigns one if it has none yet. */
  of(digest: string): number {
    const raw = rawOf(digest)
    const known = this.#numbers.get(raw)
    if (known !== undefined) return known
    this.#numbers.set(raw, this.#raw.length)
    return this.#raw.push(raw) - 1
  }

  /** Returns the digest with this number. */
  text(number: number): string {
    const raw = this.#raw[number]
    if (raw === undefined) throw new RangeError('no digest has this number')
    return textOf(raw)
  }
}
