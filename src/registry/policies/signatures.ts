import { setImmediate as nextTurn } from 'node:timers/promises'
import { parseBoundedJson } from '../../base/bounded-json.ts'
import { algorithmOf, digestOf, hexOf, parseDigest, type Digest } from '../../base/digest.ts'
import { errorMessage, errorText } from '../../base/error-text.ts'
import { DomainError } from '../../base/errors.ts'
import { RecentMap } from '../../base/recent-map.ts'
import type { Uid } from '../../base/uid.ts'
import type { Services } from '../../engine/services.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import type { ManifestCache } from '../oci/manifests/manifest-cache.ts'
import { heldBlob } from '../records/blobs.ts'
import { heldManifest, referrerGeneration, referrersOf } from '../records/manifests.ts'
import { tagNamed, tagOf } from '../records/tags.ts'
import { UpstreamError } from '../upstream/upstream.ts'
import type * as Library from './signature.ts'
import type { HeldSignature, SignatureContext } from './signature.ts'
import { signPredicate, type Signature, type SignatureFacts } from './signature-rule.ts'

/** What reading signatures needs. */
export interface SignaturesOptions {
  readonly services: Services
  readonly manifests: Pick<ManifestCache, 'get'>
  /** Returns the trusted root of sigstore, as JSON; undefined without one. The buffer stays the same until the file changes. */
  readonly trustedRoot: () => Buffer | undefined
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
  readonly gap: string
  readonly bytes: number
}

/** The trusted root. */
interface Trust {
  readonly source: Buffer | undefined
  readonly material: SignatureContext['trust']
  /** Counts the trusted roots that there were. */
  readonly number: number
  /** Why it cannot be used; empty if it can, and if there is none. */
  readonly problem: string
}

/** A manifest that may contain signatures of a manifest. */
interface Candidate {
  readonly digest: Digest
  readonly subject: Digest
}

/** Limits of one pull. What is beyond them is not looked at: the newest count. */
const limits = { manifests: 20, referrers: 1_000, referrersAtOnce: 200, candidates: 20, layers: 20, signatures: 100 } as const
const maxPayloadBytes = 64 * 1024
const maxBundleBytes = 256 * 1024
/** The memory for signatures that were checked, in bytes. */
const rememberedBytes = 16 * 1024 * 1024
const overheadBytes = 2_048
/** Time for reading all signatures, and time until signatures that could not be read are read again, in milliseconds. */
const [timeoutMs, retryMs] = [10_000, 5_000]

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
  return found.slice(-limits.layers).reverse()
}

/** Reads signatures of manifests from a repo, and checks them once. */
export class Signatures {
  readonly #options: SignaturesOptions
  readonly #parts = new RecentMap<string, Part>(rememberedBytes, ({ bytes }) => bytes + overheadBytes)
  #trust: Trust = { source: undefined, material: undefined, number: 0, problem: '' }

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

  /** Resolves with the signatures of a manifest, and of the indexes that contain it. Rejects with StoreError, or the signal's reason. */
  async of(repo: Uid, manifests: readonly SignedManifest[], signal: AbortSignal): Promise<FoundSignatures> {
    const subjects = manifests.slice(0, limits.manifests)
    const tags = subjects.map(({ upstreamDigest }) => {
      const name = `sha256-${hexOf(upstreamDigest)}.sig`
      return { name, digest: this.#tagged(repo, name) }
    })
    const limited = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    const trust = await this.#trusted()
    const parts: Part[] = []
    let left: number = limits.signatures
    for (const [at, subject] of subjects.entries()) {
      for (const candidate of await this.#candidates(repo, { subject, tagged: tags[at]?.digest }, signal)) {
        if (left <= 0) break
        const part = await this.#part({ repo, candidate, trust }, { signal, limited })
        left -= part.signatures.length + part.faults.length
        parts.push(part)
      }
    }
    const gap = parts.map((part) => part.gap).find((one) => one !== '') ?? ''
    return {
      facts: {
        signatures: parts.flatMap(({ signatures }) => signatures),
        faults: parts.flatMap(({ faults }) => faults),
        gap,
        trustProblem: trust.material === undefined ? trust.problem || 'no trusted root is configured' : '',
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

  async #trusted(): Promise<Trust> {
    const source = this.#options.trustedRoot()
    if (this.#trust.source === source) return this.#trust
    const number = this.#trust.number + 1
    if (source === undefined) return (this.#trust = { source, material: undefined, number, problem: '' })
    const { readTrustedRoot } = await loadLibrary()
    try {
      this.#trust = { source, material: readTrustedRoot(source.toString()), number, problem: '' }
    } catch (error) {
      this.#options.services.log.error('the trusted root of signatures cannot be used', { error: errorText(error) })
      this.#trust = { source, material: undefined, number, problem: 'the trusted root cannot be used' }
    }
    return this.#trust
  }

  /** Resolves with the manifests that may contain signatures: the one that the tag names, and the newest referrers. */
  async #candidates(repo: Uid, { subject, tagged }: { subject: SignedManifest; tagged: string | undefined }, signal: AbortSignal): Promise<Candidate[]> {
    const { services } = this.#options
    const found: { digest: Digest; record: ManifestRecord }[] = []
    for (const name of new Set([subject.digest, subject.upstreamDigest])) {
      let after: Digest | undefined
      for (let listed = 0; listed < limits.referrers; listed += limits.referrersAtOnce) {
        const page = { repo, subject: name, limit: limits.referrersAtOnce, ...(after !== undefined && { after }) }
        const { items, more } = await referrersOf(services, page, signal)
        found.push(...items.filter(({ record }) => mayBeSignature(record)))
        after = items.at(-1)?.digest
        if (!more || after === undefined) break
      }
    }
    const newest = found.sort((one, other) => Number(other.record.createTimeMs - one.record.createTimeMs)).slice(0, limits.candidates)
    const digests = [...(tagged === undefined ? [] : [tagged as Digest]), ...newest.map(({ digest }) => digest)] // a cast: of a checked record
    return [...new Set(digests)].map((digest) => ({ digest, subject: subject.upstreamDigest }))
  }

  /** Resolves with the signatures in a manifest. What was checked is kept: its bytes never change. */
  async #part(
    { repo, candidate, trust }: { repo: Uid; candidate: Candidate; trust: Trust },
    { signal, limited }: { signal: AbortSignal; limited: AbortSignal },
  ): Promise<Part> {
    const { digest, subject } = candidate
    const key = `${repo} ${digest} ${subject} ${trust.number}`
    const known = this.#parts.get(key)
    if (known !== undefined && (await heldManifest(this.#options.services, { repo, digest }, signal)) !== undefined) return known
    try {
      const part = await this.#read(repo, candidate, { trust: trust.material, signal: limited })
      this.#parts.set(key, part)
      return part
    } catch (error) {
      signal.throwIfAborted()
      const isUnreadable = error instanceof UnreadableError || error instanceof UpstreamError || (error instanceof DomainError && error.code === 14)
      if (!isUnreadable && !limited.aborted) throw error
      this.#options.services.log.warn('a signature cannot be read', { repo, digest, error: errorText(error) })
      return { signatures: [], faults: [], gap: 'signatures cannot be read now', bytes: 0 }
    }
  }

  async #read(repo: Uid, { digest, subject }: Candidate, { trust, signal }: { trust: SignatureContext['trust']; signal: AbortSignal }): Promise<Part> {
    const { manifests, services } = this.#options
    if ((await heldManifest(services, { repo, digest }, signal)) === undefined) return { signatures: [], faults: [], gap: '', bytes: 0 }
    const manifest = await manifests.get({ repo, digest }, signal)
    if (manifest === undefined) throw new UnreadableError(`the upstream lacks manifest ${digest}`)
    const signatures: Signature[] = []
    const faults: string[] = []
    let bytes = 0
    for (const layer of layersIn(manifest.bytes)) {
      const held = await this.#held(repo, layer, signal)
      if (held === undefined) {
        faults.push('it is too large, or is not there')
        continue
      }
      // A check may take milliseconds, and there may be many.
      await nextTurn()
      const { readSignature } = await loadLibrary()
      try {
        signatures.push(readSignature(held, { subject, trust }))
        bytes += held.bytes.length + overheadBytes
      } catch (error) {
        faults.push(errorMessage(error))
      }
    }
    return { signatures, faults, gap: '', bytes }
  }

  /** Resolves with a signature; undefined if the repo does not hold it, or if it is too large. Rejects with UnreadableError if the upstream lacks it. */
  async #held(repo: Uid, { digest, form, annotations }: Layer, signal: AbortSignal): Promise<HeldSignature | undefined> {
    const { services } = this.#options
    const maxBytes = form === 'payload' ? maxPayloadBytes : maxBundleBytes
    const record = await heldBlob(services, { repo, digest }, signal)
    if (record === undefined || Number(record.size) > maxBytes) return undefined
    // A cast: the record holds nothing else.
    const bytes = await services.content?.readBlob(repo, { digest: record.upstreamDigest as Digest, maxBytes }, signal)
    if (bytes === undefined) throw new UnreadableError(`the upstream lacks blob ${digest}`)
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw new UnreadableError(`blob ${digest} is damaged`)
    return form === 'bundle' ? { form, bytes } : { form, bytes, annotations }
  }
}

/** Resolves with the checks of signatures. They need a library that takes long to load, and most processes check no signature. */
async function loadLibrary(): Promise<typeof Library> {
  return import('./signature.ts')
}
