import { createHash } from 'node:crypto'
import { parseBoundedJson } from '../../base/bounded-json.ts'
import { algorithmOf, digestOf, hexOf, parseDigest, type Digest } from '../../base/digest.ts'
import { errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { RecentMap } from '../../base/recent-map.ts'
import { TaskThread } from '../../base/task-thread.ts'
import { rootOf, type Uid } from '../../base/uid.ts'
import type { Services } from '../../engine/services.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { ManifestCache } from '../oci/manifests/manifest-cache.ts'
import { heldBlob } from '../records/blobs.ts'
import { heldManifest, referrerGeneration, referrersOf } from '../records/manifests.ts'
import { tagNamed, tagOf } from '../records/tags.ts'
import { UpstreamError } from '../upstream/upstream.ts'
import type { HeldSignature } from './signature.ts'
import type { CheckedSignature, SignatureTask } from './signature-worker.ts'
import { signPredicate, type Signature, type SignatureFacts } from './signature-rule.ts'

/** What reading signatures needs. */
export interface SignaturesOptions {
  readonly services: Services
  readonly manifests: Pick<ManifestCache, 'get'>
  /** Returns the trusted root of sigstore, as JSON; undefined without one. The buffer stays the same until the file changes. */
  readonly trustedRoot: () => Buffer | undefined
}

/** What signatures are asked for: those of manifests of a repo, and whether keys made them. */
export interface SignatureQuestion {
  readonly repo: Uid
  readonly manifests: readonly SignedManifest[]
  /** Public keys in PEM form. */
  readonly keys: readonly string[]
}

/** A manifest whose signatures count, by its digests. */
export interface SignedManifest {
  /** The digest that the repo holds it by. */
  readonly digest: Digest
  /** Its SHA-256 digest. */
  readonly upstreamDigest: Digest
}

/** What was found of signatures, and how long it holds. */
export interface FoundSignatures {
  readonly facts: SignatureFacts
  /** Tags of cosign's older form that were looked at, with the digests that they named. */
  readonly tags: readonly { readonly name: string; readonly digest: string | undefined }[]
  /** The time at which to look again. */
  readonly untilMs: number
  /** Approximate memory, in bytes. */
  readonly bytes: number
}

/** The signatures in one manifest. */
interface Part {
  readonly signatures: readonly Signature[]
  readonly faults: readonly string[]
  readonly bytes: number
  /** False if the repo did not hold all of it. */
  readonly isWhole: boolean
}

/** The trusted root. */
interface Trust {
  readonly source: Buffer | undefined
  /** The last one that can be used, as JSON. */
  readonly text: string | undefined
  /** Counts the trusted roots that there were. */
  readonly number: number
  /** Why it cannot be used; empty if it can, and if there is none. */
  readonly problem: string
}

/** What is left of the limits of one pull. */
interface Budget {
  referrers: number
  signatures: number
  checks: number
}

/** One look at the signatures of a manifest. */
interface Reading extends Pick<SignatureQuestion, 'repo' | 'keys'> {
  readonly trust: Trust
  /** A text for all keys. */
  readonly keysId: string
  readonly budget: Budget
  readonly signal: AbortSignal
}

/** A manifest that may contain signatures of a manifest. */
interface Candidate {
  readonly digest: Digest
  readonly subject: Digest
}

/**
 * Limits of one pull. What is beyond them is not looked at: the newest count. Checks are of one signature by one key, and those of Ed25519 take milliseconds.
 */
const limits = { manifests: 20, referrers: 1_000, referrersAtOnce: 200, candidates: 20, layers: 20, signatures: 40, checks: 400 } as const
/** Number of keys to check in one turn of the thread: other organisations wait meanwhile. */
const keysAtOnce = 20
const maxBytes = 64 * 1024
/** The memory for signatures that were checked, in bytes. */
const rememberedBytes = 16 * 1024 * 1024
const overheadBytes = 2_048
/** Time for one read, and time until signatures that could not be read are read again, in milliseconds. */
const [readMs, retryMs] = [5_000, 5_000]

const bundleType = /^application\/vnd\.dev\.sigstore\.bundle(?:\.v\d\.\d)?\+json/
const payloadType = 'application/vnd.dev.cosign.simplesigning.v1+json'
const signatureType = 'application/vnd.dev.cosign.artifact.sig.v1+json'
const predicateKey = 'dev.sigstore.bundle.predicateType'
const manifestBounds = { maxDepth: 64, maxValues: 262_144, maxKeys: 262_144 }

/** A signature that the repo should hold, and that cannot be read now. */
class UnreadableError extends Error {
  override readonly name = 'UnreadableError'
}

/** True if a referrer may be a signature. The annotation is a hint: the statement itself decides. */
function mayBeSignature({ artifactType, annotations }: ManifestRecord): boolean {
  if (artifactType === signatureType) return true
  return bundleType.test(artifactType) && [undefined, signPredicate].includes(annotations[predicateKey])
}

interface Layer {
  readonly digest: Digest
  readonly form: HeldSignature['form']
  readonly annotations: Readonly<Record<string, unknown>>
}

function recordIn(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Readonly<Record<string, unknown>>) : {} // a cast: it is an object of JSON
}

function layersIn(manifest: Uint8Array): Layer[] {
  // The manifest was valid when it was pushed.
  const { layers } = recordIn(parseBoundedJson(Buffer.from(manifest).toString(), manifestBounds))
  const found = (Array.isArray(layers) ? layers : []).flatMap((value: unknown) => {
    const { mediaType, digest, annotations } = recordIn(value)
    const parsed = typeof digest === 'string' ? parseDigest(digest) : undefined
    if (parsed === undefined || typeof mediaType !== 'string') return []
    if (mediaType !== payloadType && !bundleType.test(mediaType)) return []
    return [{ digest: parsed, form: mediaType === payloadType ? 'payload' : 'bundle', annotations: recordIn(annotations) } as const]
  })
  // Cosign adds the newest one at the end.
  const newest = found.slice(-limits.layers).reverse()
  return [...new Map(newest.map((layer) => [`${layer.digest} ${JSON.stringify(layer.annotations)}`, layer])).values()]
}

/** Returns what a check found as a signature. */
function signatureOf(checked: Exclude<CheckedSignature, { readonly fault: string }>): Signature {
  const { hasCertificate, signer, problem } = checked
  const signedBy = new Set(checked.signedBy)
  return { hasCertificate, signer, problem, isSignedBy: (key) => signedBy.has(key) }
}

/** Reads signatures of manifests from a repo, and checks them once. */
export class Signatures {
  readonly #options: SignaturesOptions
  readonly #parts = new RecentMap<string, Part>(rememberedBytes, ({ bytes }) => bytes + overheadBytes)
  readonly #reading = new Map<string, Promise<Part>>()
  /** Checks run in a thread: one takes up to a tenth of a second, and who may push decides what is checked. */
  readonly #thread = new TaskThread<SignatureTask>(new URL('signature-worker.ts', import.meta.url), {})
  #trust: Trust = { source: undefined, text: undefined, number: 0, problem: '' }

  constructor(options: SignaturesOptions) {
    this.#options = options
  }

  /** The trusted root of sigstore, as JSON. The same buffer until the file changes. */
  get trustedRoot(): Buffer | undefined {
    return this.#options.trustedRoot()
  }

  /** Returns what all facts of a repo depend on, other than tags. */
  basisOf(repo: Uid): readonly unknown[] {
    return [referrerGeneration(this.#options.services.cache.tables, repo), this.#options.trustedRoot()]
  }

  /** True while what was found holds, if the basis did not change. */
  holds(repo: Uid, { tags, untilMs }: FoundSignatures): boolean {
    return this.#options.services.clock.now() < untilMs && tags.every(({ name, digest }) => this.#tagged(repo, name) === digest)
  }

  /** Ends the thread. */
  close(): Promise<void> {
    return this.#thread.close()
  }

  /** Resolves with the signatures of a manifest, and of the indexes that contain it. Rejects with StoreError, or the signal's reason. */
  async of({ repo, manifests, keys }: SignatureQuestion, signal: AbortSignal): Promise<FoundSignatures> {
    const subjects = manifests.slice(0, limits.manifests)
    const tags = subjects.map(({ upstreamDigest }) => {
      const name = `sha256-${hexOf(upstreamDigest)}.sig`
      return { name, digest: this.#tagged(repo, name) }
    })
    const trust = await this.#trusted()
    const budget: Budget = { ...limits }
    const reading = { repo, trust, keys, budget, signal, keysId: createHash('sha256').update(JSON.stringify(keys)).digest('hex') }
    const parts: Part[] = []
    let gap = ''
    for (const [at, subject] of subjects.entries()) {
      for (const candidate of await this.#candidates(reading, { subject, tagged: tags[at]?.digest })) {
        if (budget.signatures <= 0 || budget.checks <= 0) break
        const part = await this.#part(reading, candidate)
        if (part === undefined) gap = 'signatures cannot be read now'
        else parts.push(part)
      }
    }
    return {
      facts: {
        signatures: parts.flatMap(({ signatures }) => signatures),
        faults: parts.flatMap(({ faults }) => faults),
        gap,
        trustProblem: trust.text === undefined ? trust.problem || 'no trusted root is configured' : '',
      },
      tags,
      untilMs: gap === '' ? Infinity : this.#options.services.clock.now() + retryMs,
      bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    }
  }

  #tagged(repo: Uid, name: string): string | undefined {
    const tag = tagNamed(this.#options.services.cache.tables, repo, name)
    return tag === undefined ? undefined : tagOf(tag).digest
  }

  /** Resolves with the trusted root. If the newest one cannot be used, the one before stays. */
  async #trusted(): Promise<Trust> {
    for (;;) {
      const source = this.#options.trustedRoot()
      if (this.#trust.source === source) return this.#trust
      const trustedRoot = source?.toString()
      const problem = trustedRoot === undefined ? '' : ((await this.#thread.ask({ kind: 'root', trustedRoot })) as string) // the answer to this task
      if (this.#options.trustedRoot() !== source) continue
      if (problem !== '') this.#options.services.log.error('the trusted root of signatures cannot be used', { error: problem })
      const text = problem === '' ? trustedRoot : this.#trust.text
      this.#trust = { source, text, number: this.#trust.number + 1, problem: problem === '' ? '' : 'the trusted root cannot be used' }
    }
  }

  /** Resolves with the manifests that may contain signatures: the one that the tag names, and the newest referrers. */
  async #candidates(
    { repo, budget, signal }: Reading,
    { subject, tagged }: { readonly subject: SignedManifest; readonly tagged: string | undefined },
  ): Promise<Candidate[]> {
    const { services } = this.#options
    const found: { digest: Digest; record: ManifestRecord }[] = []
    for (const name of new Set([subject.digest, subject.upstreamDigest])) {
      let after: Digest | undefined
      while (budget.referrers > 0) {
        const page = { repo, subject: name, limit: Math.min(budget.referrers, limits.referrersAtOnce), ...(after !== undefined && { after }) }
        const { items, more } = await referrersOf(services, page, signal)
        budget.referrers -= items.length
        found.push(...items.filter(({ record }) => mayBeSignature(record)))
        after = items.at(-1)?.digest
        if (!more || after === undefined) break
      }
    }
    const newest = found.sort((one, other) => Number(other.record.createTimeMs - one.record.createTimeMs)).slice(0, limits.candidates)
    const digests = [...(tagged === undefined ? [] : [tagged as Digest]), ...newest.map(({ digest }) => digest)] // a cast: of a checked record
    return [...new Set(digests)].map((digest) => ({ digest, subject: subject.upstreamDigest }))
  }

  /** Resolves with the signatures in a manifest; undefined if they cannot be read now. What was checked is kept: its bytes never change. */
  async #part(reading: Reading, candidate: Candidate): Promise<Part | undefined> {
    const { repo, trust, keysId, budget, signal } = reading
    const { digest, subject } = candidate
    const key = `${repo} ${digest} ${subject} ${trust.number} ${keysId}`
    const known = this.#parts.get(key)
    if (known !== undefined && (await heldManifest(this.#options.services, { repo, digest }, signal)) !== undefined) {
      budget.signatures -= known.signatures.length + known.faults.length
      return known
    }
    // Pulls by a tag and by its digest wait for the same.
    const others = this.#reading.get(key)
    const made = others ?? this.#read(reading, candidate)
    this.#reading.set(key, made)
    const forget = (): void => {
      if (this.#reading.get(key) === made) this.#reading.delete(key)
    }
    try {
      const part = await made
      if (part.isWhole) this.#parts.set(key, part)
      return part
    } catch (error) {
      signal.throwIfAborted()
      const isUnreadable = error instanceof UnreadableError || error instanceof UpstreamError || (error instanceof DomainError && error.code === 14)
      if (!isUnreadable) {
        if (made !== others) throw error
        // Who began to read may have left.
        forget()
        return this.#part(reading, candidate)
      }
      this.#options.services.log.warn('a signature cannot be read', { repo, digest, error: errorText(error) })
      return undefined
    } finally {
      forget()
    }
  }

  async #read(reading: Reading, { digest, subject }: Candidate): Promise<Part> {
    const { repo, budget, signal } = reading
    const { manifests, services } = this.#options
    if ((await heldManifest(services, { repo, digest }, signal)) === undefined) return { signatures: [], faults: [], bytes: 0, isWhole: false }
    const manifest = await inTime(signal, (limited) => manifests.get({ repo, digest }, limited))
    if (manifest === undefined) throw new UnreadableError(`the upstream lacks manifest ${digest}`)
    const signatures: Signature[] = []
    const faults: string[] = []
    let bytes = 0
    let isWhole = true
    for (const layer of layersIn(manifest.bytes)) {
      if (budget.signatures <= 0 || budget.checks <= 0) {
        faults.push('there are too many signatures and keys')
        isWhole = false
        break
      }
      budget.signatures -= 1
      const held = await this.#held(repo, layer, signal)
      if (held === undefined) {
        faults.push('it is too large, or is not there')
        isWhole = false
        continue
      }
      const checked = await this.#checked(reading, { held, subject })
      if ('fault' in checked) faults.push(checked.fault)
      else signatures.push(signatureOf(checked))
      bytes += overheadBytes
    }
    return { signatures, faults, bytes, isWhole }
  }

  /** Checks a signature in the thread, where organisations take turns. Time that it takes is no gap: who may push decides about it. */
  async #checked({ repo, trust, keys, budget, signal }: Reading, { held, subject }: { held: HeldSignature; subject: Digest }): Promise<CheckedSignature> {
    const turn = { key: rootOf(repo), signal }
    const signedBy: string[] = []
    const counted = keys.slice(0, budget.checks)
    budget.checks -= Math.max(1, counted.length)
    for (let at = 0; ; at += keysAtOnce) {
      const task: SignatureTask = { kind: 'check', held, subject, trustedRoot: trust.text, keys: counted.slice(at, at + keysAtOnce) }
      const checked = (await this.#thread.ask(task, turn)) as CheckedSignature // the answer to this task
      if ('fault' in checked) return checked
      signedBy.push(...checked.signedBy)
      if (at + keysAtOnce >= counted.length) return { ...checked, signedBy }
    }
  }

  /** Resolves with a signature; undefined if the repo does not hold it, or if it is too large. Rejects with UnreadableError if the upstream lacks it. */
  async #held(repo: Uid, { digest, form, annotations }: Layer, signal: AbortSignal): Promise<HeldSignature | undefined> {
    const { services } = this.#options
    const record = await heldBlob(services, { repo, digest }, signal)
    if (record === undefined || Number(record.size) > maxBytes) return undefined
    // A cast: the record holds nothing else.
    const asked = { digest: record.upstreamDigest as Digest, maxBytes }
    const bytes = await inTime(signal, (limited) => services.content?.readBlob(repo, asked, limited))
    if (bytes === undefined) throw new UnreadableError(`the upstream lacks blob ${digest}`)
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw new UnreadableError(`blob ${digest} is damaged`)
    return form === 'bundle' ? { form, bytes } : { form, bytes, annotations }
  }
}

/** Resolves with what the upstream answers. Rejects with UnreadableError if it does not answer in time. */
async function inTime<T>(signal: AbortSignal, read: (limited: AbortSignal) => T | Promise<T>): Promise<T> {
  const limit = AbortSignal.timeout(readMs)
  try {
    return await read(AbortSignal.any([signal, limit]))
  } catch (error) {
    signal.throwIfAborted()
    throw limit.aborted ? new UnreadableError('the upstream does not answer in time', { cause: error }) : error
  }
}
