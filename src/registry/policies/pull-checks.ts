import type { Digest } from '../../base/digest.ts'
import { RecentMap } from '../../base/recent-map.ts'
import type { TaskTurn } from '../../base/task-thread.ts'
import { untilAborted } from '../../base/timing.ts'
import { lineage, rootOf, type Uid } from '../../base/uid.ts'
import type { ImageFacts } from '../../cache/lists/contents-source.ts'
import type { CachedRecord } from '../../cache/records/cached-record.ts'
import { messageOf } from '../../cache/records/record-types.ts'
import type { RecordTables } from '../../cache/record-tables.ts'
import type { Services } from '../../engine/services.ts'
import type { Revision } from '../../store/store.ts'
import { platformImages } from '../records/images.ts'
import { heldManifest, indexGeneration, manifestGeneration } from '../records/manifests.ts'
import { pathOf } from '../records/repo-paths.ts'
import { publicRoot } from '../records/repo-rules.ts'
import { tagOf, tagsAt } from '../records/tags.ts'
import { runsAsImage } from '../oci/manifests/manifest-parser.ts'
import { RegistryError } from '../registry-error.ts'
import { UpstreamError } from '../upstream/upstream.ts'
import { IndexParents, type ParentIndex } from './index-parents.ts'
import { hasPolicies, policiesAbove, signatureKeys, signaturePolicies, type PullPolicyRecord } from './pull-policies.ts'
import { Signatures, type FoundSignatures, type SignaturesOptions, type SignedManifest } from './signatures.ts'
import { verdictOn, type PullVerdict } from './verdict.ts'

/** A manifest that is pulled. */
export interface PulledManifest {
  readonly repo: Uid
  /** The SHA-256 digest if it is pulled by a tag, else the digest in the request. */
  readonly digest: Digest
  /** The tag by which it is pulled; undefined if it is pulled by digest. */
  readonly tag: { readonly name: string; readonly deprecated: boolean } | undefined
  readonly bytes: Uint8Array
}

/** What is known of a manifest, apart from its tags. */
interface KnownManifest {
  readonly upstreamDigest: Digest
  readonly images: readonly ImageFacts[]
  /** The indexes that contain it as an image, if it is pulled by digest. */
  readonly parents: readonly ParentIndex[]
  readonly pushedMs: number | undefined
  readonly pushedByMs: number
  /** Undefined while no policy asks for signatures. */
  readonly signatures: FoundSignatures | undefined
  /** What it is, if no tag says more. */
  readonly sort: 'image' | 'index' | 'artifact' | 'accompanying'
}

/** What the facts about a manifest depend on. All members are compared with `===`. */
type Basis = readonly unknown[]

/** What is known of a manifest while its basis stays the same, and the last verdict on it. */
interface Remembered {
  readonly basis: Basis
  readonly known: KnownManifest
  tags?: TagFacts & { readonly change: number }
  last?: { readonly policies: readonly CachedRecord[]; readonly isDeprecated: boolean; readonly verdict: PullVerdict }
  /** The last moment at which basis and policies were the same as before. */
  moment?: Moment
}

/** What the process knew at one moment. All members are compared with `===`. */
interface Moment {
  readonly tables: RecordTables
  readonly revision: Revision
  readonly contents: unknown
  readonly advisories: unknown
  readonly trustedRoot: unknown
}

/** What the tags say about a manifest. */
interface TagFacts {
  readonly isExempt: boolean
  readonly isDeprecated: boolean
}

/** An answer that pulls wait for. */
interface Asking {
  readonly basis: Basis
  readonly known: Promise<KnownManifest>
}

/** The most verdicts to remember, by weight: one, and one for each vulnerability in the images, and for each kilobyte of signatures. */
const rememberedWeight = 500_000
/** Time for the answers to one question, in milliseconds. */
const timeoutMs = 30_000

/** Tags of cosign: signatures, attestations and SBOMs of the image with this digest. */
const cosignTag = /^sha256-[0-9a-f]{64}\.(?:sig|att|sbom)$/
/** Tags of lists of referrers, for registries without the referrers API (OCI distribution specification, "Referrers tag schema"). */
const referrersTag = /^sha256-[0-9a-f]{64}$/

function isSame(left: readonly unknown[], right: readonly unknown[]): boolean {
  return left.length === right.length && left.every((one, at) => one === right[at])
}

function sortOf({ isIndex, runs, accompanies }: Readonly<Record<'isIndex' | 'runs' | 'accompanies', boolean>>): KnownManifest['sort'] {
  if (isIndex) return 'index'
  if (runs) return 'image'
  return accompanies ? 'accompanying' : 'artifact'
}

/** Returns when a manifest, and the indexes that contain it, were first pushed: the latest known time, and one that no first push is after. */
function pushesOf(records: readonly ParentIndex['record'][]): Pick<KnownManifest, 'pushedMs' | 'pushedByMs'> {
  const known = records.map(({ firstPushTimeMs }) => Number(firstPushTimeMs)).filter((ms) => ms > 0)
  const bounds = records.map(({ firstPushTimeMs, createTimeMs }) => Number(firstPushTimeMs || createTimeMs))
  return { pushedMs: known.length === 0 ? undefined : Math.max(...known), pushedByMs: Math.max(0, ...bounds) }
}

function namesOfParent({ digest, record }: ParentIndex): SignedManifest {
  return { digest: digest as Digest, upstreamDigest: record.upstreamDigest as Digest } // of checked records
}

function newestFirst(parents: readonly ParentIndex[]): ParentIndex[] {
  return [...parents].sort((one, other) => Number(other.record.createTimeMs - one.record.createTimeMs))
}

function messagesOf(policies: readonly CachedRecord[]): PullPolicyRecord[] {
  return policies.map((record) => messageOf(record, 'PullPolicy'))
}

/** Says what pull policies say about manifests. Keeps its answers until something changes that they depend on. */
export class PullChecks {
  readonly #services: Services
  readonly #parents: IndexParents
  readonly #signatures: Signatures
  readonly #remembered = new RecentMap<string, Remembered>(rememberedWeight, ({ known }) =>
    known.images.reduce((sum, one) => sum + one.vulnerabilities.length, 1 + Math.ceil((known.signatures?.bytes ?? 0) / 1_000)),
  )
  readonly #asking = new Map<string, Asking>()

  constructor(options: SignaturesOptions) {
    const { services } = options
    this.#services = services
    this.#parents = new IndexParents(services)
    this.#signatures = new Signatures(options)
  }

  /**
   * Returns the verdict on a pull as of the snapshot. Undefined if there is no policy above the repo, and for signatures, SBOMs and attestations. Rejects with
   * StoreError, DomainError, or the signal's reason: then nothing is known, and nothing may be sent.
   */
  verdict(pulled: PulledManifest, signal: () => AbortSignal): PullVerdict | undefined | Promise<PullVerdict | undefined> {
    const { tables } = this.#services.cache
    if (!hasPolicies(tables)) return undefined
    const remembered = this.#remembered.get(keyOf(pulled))
    // Most pulls come while nothing changes.
    if (remembered?.last !== undefined && this.#isNow(remembered)) return this.#verdictFrom(pulled, remembered, remembered.last.policies)
    const policies = policiesAbove(tables, pulled.repo)
    if (policies.length === 0) return undefined
    if (remembered !== undefined && this.#holds(pulled.repo, remembered)) {
      const verdict = this.#verdictFrom(pulled, remembered, policies)
      // An exempt pull says nothing about other tags of the manifest.
      if (verdict !== undefined) remembered.moment = this.#now()
      return verdict
    }
    return this.#facts(pulled, signal()).then((found) => this.#verdictFrom(pulled, found, policiesAbove(this.#services.cache.tables, pulled.repo)))
  }

  /** Resolves with what each set of policies says about a pull. Undefined for signatures, SBOMs and attestations. It is not remembered. Rejects like `verdict`, and with UpstreamError. */
  async trial(pulled: PulledManifest, sets: readonly (readonly PullPolicyRecord[])[], signal: AbortSignal): Promise<PullVerdict[] | undefined> {
    const limit = AbortSignal.timeout(timeoutMs)
    const turn = { key: `dry run ${rootOf(pulled.repo)}`, signal: AbortSignal.any([signal, limit]) }
    const known = await this.#read(pulled, signatureKeys(sets.flat()), turn).catch((error: unknown) => {
      throw limit.aborted ? new UpstreamError('unavailable', 'what is known of a manifest took too long', error) : error
    })
    if (this.#isExempt(pulled, known)) return undefined
    const isDeprecated = pulled.tag?.deprecated ?? this.#isDeprecated(pulled, known)
    return sets.map((policies) => this.#judge(pulled, { ...known, isDeprecated }, policies))
  }

  /** Ends the thread that checks signatures. */
  close(): Promise<void> {
    return this.#signatures.close()
  }

  #now(): Moment {
    const { cache, imageContents } = this.#services
    const { tables, revision } = cache
    return { tables, revision, contents: imageContents?.edition, advisories: this.#advisories(), trustedRoot: this.#signatures.trustedRoot }
  }

  /** True while nothing at all changed since the last comparison. */
  #isNow({ moment, known: { signatures } }: Remembered): boolean {
    const { cache, imageContents, clock } = this.#services
    if (moment?.revision !== cache.revision || moment.tables !== cache.tables || moment.contents !== imageContents?.edition) return false
    if (moment.advisories !== this.#advisories() || moment.trustedRoot !== this.#signatures.trustedRoot) return false
    return signatures === undefined || clock.now() < signatures.untilMs
  }

  /** True while what is remembered of a manifest holds, other than its tags. */
  #holds(repo: Uid, { basis, known: { signatures } }: Remembered): boolean {
    return isSame(basis, this.#basisOf(repo)) && (signatures === undefined || this.#signatures.holds(repo, signatures))
  }

  #verdictFrom(pulled: PulledManifest, remembered: Remembered, policies: readonly CachedRecord[]): PullVerdict | undefined {
    const { last } = remembered
    const { isExempt, isDeprecated } = this.#tagFacts(pulled, remembered)
    if (isExempt) return undefined
    if (last?.isDeprecated === isDeprecated && this.#services.clock.now() < last.verdict.untilMs && isSame(last.policies, policies)) return last.verdict
    const verdict = this.#judge(pulled, { ...remembered.known, isDeprecated }, messagesOf(policies))
    remembered.last = { policies, isDeprecated, verdict }
    return verdict
  }

  #judge(pulled: PulledManifest, known: KnownManifest & Pick<TagFacts, 'isDeprecated'>, policies: readonly PullPolicyRecord[]): PullVerdict {
    const { images, parents, pushedMs, pushedByMs, upstreamDigest, isDeprecated, signatures } = known
    const digests = [pulled.digest, upstreamDigest, ...parents.flatMap(({ digest, record }) => [digest, record.upstreamDigest])]
    const facts = { repo: pulled.repo, digests, images, isDeprecated, signatures: signatures?.facts, pushedMs, pushedByMs }
    return verdictOn(policies, { ...facts, nowMs: this.#services.clock.now() })
  }

  /** Returns everything that facts about manifests of a repo depend on, other than tags and policies. */
  #basisOf(repo: Uid): Basis {
    const { cache, imageContents, settings } = this.#services
    const { tables } = cache
    const shared = publicRoot(tables, settings.registry?.publicOrganization)
    const handMade = tables.table('Advisory')
    const groups = shared === undefined ? lineage(repo) : [...lineage(repo), shared]
    const signing = this.#signingPolicies(repo)
    const signatures = signing.length === 0 ? [] : [...signing, ...this.#signatures.basisOf(repo)]
    const generations = [manifestGeneration(tables, repo), indexGeneration(tables, repo), ...signatures]
    // Statements about images name their path.
    const path = pathOf(tables, repo)
    return [...generations, path, imageContents?.editionOf(repo), this.#advisories(), shared, ...groups.map((group) => handMade.changeOf(group))]
  }

  #signingPolicies(repo: Uid): CachedRecord[] {
    return signaturePolicies(policiesAbove(this.#services.cache.tables, repo))
  }

  /** Returns the catalogue of advisories; `loading` while it is not there. */
  #advisories(): unknown {
    try {
      return this.#services.catalogue('advisories')
    } catch {
      return 'loading'
    }
  }

  /** Resolves with the facts about a manifest. Pulls of one manifest that wait at the same time share the answer. */
  async #facts(pulled: PulledManifest, signal: AbortSignal): Promise<Remembered> {
    const key = keyOf(pulled)
    const basis = this.#basisOf(pulled.repo)
    const signing = this.#signingPolicies(pulled.repo)
    const others = this.#asking.get(key)
    let asking = others
    if (asking === undefined || !isSame(asking.basis, basis)) {
      const made: Asking = {
        basis,
        known: this.#read(pulled, signatureKeys(messagesOf(signing)), { key: `pull ${rootOf(pulled.repo)}`, signal: AbortSignal.timeout(timeoutMs) }),
      }
      const forget = (): void => {
        if (this.#asking.get(key) === made) this.#asking.delete(key)
      }
      made.known.then(forget, forget)
      this.#asking.set(key, made)
      asking = made
    }
    const known = await untilAborted(asking.known, signal)
    const remembered = { basis, known }
    // Other policies may have other keys.
    if (!isSame(signing, this.#signingPolicies(pulled.repo))) return this.#facts(pulled, signal)
    // A tag of a signature may have moved before this pull began, and after the others asked.
    if (asking === others && known.signatures !== undefined && !this.#signatures.holds(pulled.repo, known.signatures)) return this.#facts(pulled, signal)
    this.#remembered.set(key, remembered)
    return remembered
  }

  /** Reads what is known of a manifest. Without `keys`, signatures are not looked at. */
  async #read({ repo, digest, tag, bytes }: PulledManifest, keys: readonly string[] | undefined, turn: TaskTurn): Promise<KnownManifest> {
    const { signal } = turn
    const record = await heldManifest(this.#services, { repo, digest }, signal)
    // It was deleted since it was found.
    if (record === undefined) throw new RegistryError('MANIFEST_UNKNOWN', 'there is no such manifest')
    const isIndex = record.children.length > 0
    const runs = !isIndex && runsAsImage(bytes, record.mediaType)
    const upstreamDigest = record.upstreamDigest as Digest // of a checked record
    const containing = tag !== undefined || isIndex ? [] : await this.#parents.of({ repo, upstreamDigest }, signal)
    // An index that hides an image as an attestation changes nothing.
    const parents = containing.filter(({ asImage }) => asImage)
    const images = (await platformImages(this.#services, { repo, digest }, signal)).map((image) => image.digest)
    // An image whose configuration names no architecture may still be one of an index.
    const asked = images.length === 0 && runs && parents.length > 0 ? [upstreamDigest] : images
    const signed = [{ digest, upstreamDigest }, ...newestFirst(parents).map(namesOfParent)]
    return {
      upstreamDigest,
      signatures: keys === undefined ? undefined : await this.#signatures.of({ repo, manifests: signed, keys }, signal),
      images: await this.#services.imageFacts(repo, asked, turn),
      parents,
      ...pushesOf([record, ...parents.map((parent) => parent.record)]),
      sort: sortOf({ isIndex, runs, accompanies: record.subject !== '' || containing.length > 0 }),
    }
  }

  /** Returns what the tags say. For a manifest that is pulled by digest, it looks at the tags again only after one of the repo changed. */
  #tagFacts(pulled: PulledManifest, remembered: Remembered): TagFacts {
    const { known, tags } = remembered
    if (pulled.tag !== undefined) return { isExempt: this.#isExempt(pulled, known), isDeprecated: pulled.tag.deprecated }
    const change = this.#services.cache.tables.table('Tag').changeOf(pulled.repo)
    if (tags?.change === change) return tags
    remembered.tags = { change, isExempt: this.#isExempt(pulled, known), isDeprecated: this.#isDeprecated(pulled, known) }
    return remembered.tags
  }

  /** True for signatures, attestations and SBOMs: referrers, parts of an index that cannot run, and what cosign's tags name. Nothing that can run is exempt. */
  #isExempt(pulled: PulledManifest, { sort, upstreamDigest }: KnownManifest): boolean {
    if (sort === 'image') return false
    if (sort === 'accompanying') return true
    const pattern = sort === 'index' ? referrersTag : cosignTag
    if (pulled.tag !== undefined) return pattern.test(pulled.tag.name)
    return this.#tagsOf(pulled.repo, [{ digest: pulled.digest, upstreamDigest }]).some((tag) => pattern.test(tag.name))
  }

  /** True for a manifest whose tags, and those of the indexes that contain it, are all deprecated. */
  #isDeprecated({ repo, digest }: PulledManifest, { upstreamDigest, parents }: KnownManifest): boolean {
    const named = [{ digest, upstreamDigest }, ...parents.map(namesOfParent)]
    const tags = this.#tagsOf(repo, named)
    return tags.length > 0 && tags.every((record) => tagOf(record).deprecated)
  }

  #tagsOf(repo: Uid, named: readonly { digest: Digest; upstreamDigest: Digest }[]): CachedRecord[] {
    const { tables } = this.#services.cache
    return named.flatMap((one) => tagsAt(tables, repo, one))
  }
}

/** Pulls by tag and by digest differ in what counts: an index gives its verdict to its images only by digest. */
function keyOf({ repo, digest, tag }: PulledManifest): string {
  return `${repo} ${digest} ${tag === undefined ? 'digest' : 'tag'}`
}
