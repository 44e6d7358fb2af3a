import { algorithmOf, digestOfHex, hexOf, isDigest, type DigestAlgorithm } from '../../base/digest.ts'

/** What the raw form of a digest begins with, by its algorithm. */
const marks = { sha256: '1', sha512: '2' } as const satisfies Record<DigestAlgorithm, string>
/** What a text begins with that is no digest. */
const otherMark = '0'

function rawOf(digest: string): string {
  if (!isDigest(digest)) return otherMark + digest
  return marks[algorithmOf(digest)] + Buffer.from(hexOf(digest), 'hex').toString('latin1')
}

function textOf(raw: string): string {
  const algorithm = (Object.keys(marks) as DigestAlgorithm[]).find((one) => marks[one] === raw[0]) // a cast: `marks` has no other keys
  return algorithm === undefined ? raw.slice(1) : digestOfHex(algorithm, Buffer.from(raw.slice(1), 'latin1').toString('hex'))
}

/** Numbers in place of digests, from 0 on: each digest is in memory once, as raw bytes, however often manifests name it. */
export class DigestNumbers {
  readonly #numbers = new Map<string, number>()
  readonly #raw: string[] = []

  /** The number of the digest, which it has from then on. */
  of(digest: string): number {
    const raw = rawOf(digest)
    const known = this.#numbers.get(raw)
    if (known !== undefined) return known
    this.#numbers.set(raw, this.#raw.length)
    return this.#raw.push(raw) - 1
  }

  /** The digest that a number stands for. */
  text(number: number): string {
    const raw = this.#raw[number]
    if (raw === undefined) throw new RangeError('the number has no digest')
    return textOf(raw)
  }
}
